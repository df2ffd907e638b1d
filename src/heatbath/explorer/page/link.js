/** Settings in the address: base64url of JSON, so that a link is a view. */

/** @typedef {import("./types.js").Settings} Settings */

/** @param {unknown} settings */
export function encode(settings) {
  const bytes = new TextEncoder().encode(JSON.stringify(settings));
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/**
 * The settings of a fragment, or null if it has none; the server checks them.
 * @param {string} fragment
 * @returns {Settings | null}
 */
export function decode(fragment) {
  const text = fragment.replace(/^#/, "");
  if (text.length < 8) return null;
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
}

/** The token of this page's address, which its other addresses need, too. */
export const token = new URLSearchParams(location.search).get("token");

/**
 * An address beside the page's own, wherever that is mounted.
 * @param {string} path
 * @param {Record<string, string>} [query]
 */
export function address(path, query = {}) {
  const url = new URL(path, location.href.split("#")[0]);
  url.search = "";
  for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
  if (token) url.searchParams.set("token", token);
  return url;
}

/** The address of the page without its token, which lets everyone in: that is for its owner to give away. */
export function shareable() {
  const url = new URL(location.href.split("#")[0]);
  url.searchParams.delete("token");
  return url.href;
}
