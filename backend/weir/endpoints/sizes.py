"""Sizes of computes, in units of one processor and 4 GiB of memory, and the limits of one that changes. Pure."""

from dataclasses import dataclass

from weir.errors import BadRequestError, NotBuiltError

# What every compute is unless somebody chooses otherwise.
UNIT = 1.0
_PARTS = (0.25, 0.5)


@dataclass(frozen=True)
class Limits:
    """The smallest and the largest size of one compute."""

    least: float = UNIT
    most: float = UNIT

    def sizes(self) -> list[float]:
        """Every size there is between the two, in order; both are among them."""
        whole = [float(size) for size in range(1, int(self.most) + 1)]
        return [size for size in (*_PARTS, *whole) if self.least <= size <= self.most]

    def nearest(self, size: float) -> float:
        """The size of these that is nearest to another number; of two, the larger."""
        return min(self.sizes(), key=lambda each: (abs(each - size), -each))


def refuse_for_all(least: float | None, most: float | None, installation: float) -> None:
    """For what concerns all endpoints of a project, which have no common size: raises as `chosen` does unless nothing
    but one unit is asked for."""
    if installation > UNIT and not {least, most} <= {None, 0, UNIT}:
        raise NotBuiltError(
            "autoscaling_limit_min_cu and autoscaling_limit_max_cu: sizes are chosen for each endpoint by itself "
            "(PATCH /projects/{project}/endpoints/{endpoint}); leave the fields out"
        )
    chosen(least, most, Limits(), UNIT)


def is_size(value: float) -> bool:
    return value in _PARTS or (value >= 1 and value == int(value))


def chosen(least: float | None, most: float | None, before: Limits, installation: float) -> Limits:
    """The limits after a request that asks for these. None and 0, which clients send whose language has no absent
    number, leave what was there `before`; `installation` is the largest size that it lets computes have. Raises
    `NotBuiltError` for what is beyond it, `BadRequestError` for what is no size or no range. Limits that do not
    change are nobody's to refuse: the installation's may have been larger."""
    after = Limits(least or before.least, most or before.most)
    if after == before:
        return before
    for name, value in (("autoscaling_limit_min_cu", after.least), ("autoscaling_limit_max_cu", after.most)):
        if installation <= UNIT and value != UNIT:
            raise NotBuiltError(
                f"{name} {value:g}: computes do not change their size here; each counts as {UNIT:g} and takes of "
                "its machine what is free; send that, or leave the field out"
            )
        if value > installation:
            raise NotBuiltError(
                f"{name} {value:g}: computes of this installation have at most {installation:g}; ask for less, or "
                "its operator for more ([computes] max_cu)"
            )
        if not is_size(value):
            raise BadRequestError(f"{name} {value:g} is no size of a compute; give 0.25, 0.5 or a whole number")
    if after.least > after.most:
        raise BadRequestError(
            f"autoscaling_limit_min_cu {after.least:g} is above autoscaling_limit_max_cu {after.most:g}; give both, "
            "the smaller one first"
        )
    return after
