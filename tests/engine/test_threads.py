"""Work on several threads, and BLAS on one for whoever needs that."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from heatbath.engine.threads import one_blas_thread, spread, thread_count


def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_has_one_thread_until_the_last_who_needs_it_has_ended():
    with one_blas_thread():  # which loads it
        pass
    with threadpool_limits(2, "blas"):
        one, two = one_blas_thread(), one_blas_thread()
        one.__enter__()
        two.__enter__()
        assert threads() == {1}
        one.__exit__(None, None, None)  # the first to come is the first to go
        assert threads() == {1}
        two.__exit__(None, None, None)
        assert threads() == {2}


def test_whoever_needs_one_thread_has_it_whatever_others_have_set_in_between():
    with one_blas_thread():
        before = threads()
        with threadpool_limits(2, "blas"):  # as a library beside us may
            assert threads() == {2}
            with one_blas_thread():
                assert threads() == {1}
    with threadpool_limits(2, "blas"):
        with one_blas_thread(), one_blas_thread():
            assert threads() == before == {1}
        assert threads() == {2}  # which is what it was before the first, not before the second


def test_thread_count_comes_from_the_argument_the_environment_or_the_cores(monkeypatch):
    monkeypatch.setenv("HEATBATH_THREADS", "3")
    assert thread_count() == 3
    assert thread_count(5) == 5
    monkeypatch.delenv("HEATBATH_THREADS")
    assert thread_count() >= 1
    for bad in ("0", "two", "-1", "1.5"):
        monkeypatch.setenv("HEATBATH_THREADS", bad)
        with pytest.raises(ValueError, match="HEATBATH_THREADS must be a whole number >= 1"):
            thread_count()


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (3, 2), (100, 3), (7, 1)])
def test_work_is_spread_over_everything_once(count, threads):
    done = np.zeros(count, int)

    def work(begin, end):
        done[begin:end] += 1

    spread(work, count, threads)
    assert done.tolist() == [1] * count


def test_an_error_in_a_thread_reaches_the_caller():
    def work(begin, end):
        raise ZeroDivisionError(f"{begin}")

    with pytest.raises(ZeroDivisionError):
        spread(work, 10, 2)
