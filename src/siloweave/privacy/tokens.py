"""Words that nobody can guess, such as the one in the address of a local page.

**Guarantee**: none over rows. A token has 256 bits of the operating system's entropy, and shares
none of them with noise, keys or masks, for which other bits are drawn.
"""

import secrets

# More than anybody can try.
_BYTES = 32


def token() -> str:
    """Return a new random word of letters, digits, "-" and "_".

    Example:
        >>> len(token()), token() == token()
        (43, False)
    """
    return secrets.token_urlsafe(_BYTES)
