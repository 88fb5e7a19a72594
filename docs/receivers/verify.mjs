import { createHmac, timingSafeEqual } from "node:crypto";

/** The event, or an Error. Names of headers in lower case; body: a Buffer with the bytes as they came. */
export function verify(secret, headers, body, now = Date.now() / 1000) {
  const [timestamp, nonce] = [headers["x-euterpe-timestamp"], headers["x-euterpe-nonce"]];
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const wanted = createHmac("sha256", key).update(`${timestamp}.${nonce}.`).update(body).digest();
  const given = Buffer.from(headers["x-euterpe-signature"] ?? "", "hex");
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted))
    throw new Error("the signature does not fit");
  if (!(Math.abs(now - Number(timestamp)) <= 300))
    throw new Error("the timestamp is more than 5 minutes from now");
  return JSON.parse(body); // its event_id is signed; the one in the header is not
}
