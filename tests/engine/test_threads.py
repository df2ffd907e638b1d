"""BLAS with one thread, for whoever needs it."""

from threadpoolctl import threadpool_info, threadpool_limits

from heatbath.engine.threads import one_blas_thread


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
