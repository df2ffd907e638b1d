/** The elements that index.html has by name. */

/**
 * An element by its id; its kind is known where it is used.
 * @param {string} id
 * @returns {any}
 */
export function get(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element ${id}`);
  return element;
}
