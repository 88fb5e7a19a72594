import base64, hashlib, hmac, json, time


def verify(secret, headers, body, now=None):
    """The event, or ValueError. Names of headers in lower case; body: the bytes as they came."""
    names = ("timestamp", "nonce", "signature")
    timestamp, nonce, given = (headers.get(f"x-euterpe-{name}", "") for name in names)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{timestamp}.{nonce}.".encode() + body
    wanted = hmac.new(key, signed, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(wanted.encode(), given.encode()):
        raise ValueError("the signature does not fit")
    if abs((now or time.time()) - int(timestamp)) > 300:
        raise ValueError("the timestamp is more than 5 minutes from now")
    return json.loads(body)  # its event_id is signed; the one in the header is not
