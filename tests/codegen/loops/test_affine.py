"""Maps from loop axes to memory."""

from __future__ import annotations

from graftjit.codegen.loops import affine


def test_an_index_that_is_read_stays_in_a_dimension_of_one_element() -> None:
    read = affine.Index((0,), 0, ((3, 1),))
    assert affine.clean((read,), (1,), (4,)) == (read,)
    assert affine.clean((affine.Index((1,)),), (1,), (4,)) == (affine.zero(1),)
