"""Sets of IP addresses as people write them: one address, ADDRESS/BITS, or FIRST-LAST, of IPv4 or IPv6."""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_range(text: str) -> tuple[Address, Address]:
    """First and last address of the range. Bits of an address behind those that BITS counts are not looked at. Raises
    ValueError, whose text names the range, when it has none of the three forms or ends before it begins."""
    wrong = ValueError(f"{text!r} is no address, and no range as ADDRESS/BITS or FIRST-LAST")
    # An address within one link means nothing to another machine.
    if "%" in text:
        raise wrong
    first, dash, last = text.partition("-")
    address, slash, bits = text.partition("/")
    try:
        if dash:
            ends = _one(first.strip()), _one(last.strip())
        elif slash:
            # Digits alone: the library would take a netmask, too.
            if not (bits.isascii() and bits.isdigit()):
                raise wrong
            network = ipaddress.ip_network((_one(address), int(bits)), strict=False)
            ends = network.network_address, network.broadcast_address
        else:
            ends = _one(text), _one(text)
    except ValueError:
        raise wrong from None
    if ends[0].version != ends[1].version:
        raise wrong
    if int(ends[0]) > int(ends[1]):
        raise ValueError(f"{text!r} ends before it begins")
    return ends


def _one(text: str) -> Address:
    return ipaddress.ip_address(text)


def plain_range(text: str) -> str:
    """The same range as FIRST-LAST, which every part of Weir reads alike."""
    first, last = parse_range(text)
    return f"{first}-{last}"
