import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.core.encoding import NEG_INF, POS_INF, decode_floats, decode_ints, encode_floats

FLOATS = st.floats(allow_nan=False)
INTS = st.integers(NEG_INF + 2, POS_INF - 2)
SHIFTS = st.sampled_from([-1, 0, 1])


@given(FLOATS, FLOATS)
def test_floats_keep_their_order(a, b):
    x, y = encode_floats(np.array([a, b]), 0).tolist()
    assert (x < y, x == y) == (a < b, a == b)


@given(FLOATS, SHIFTS)
def test_floats_come_back(value, shift):
    encoded = encode_floats(np.array([value]), shift)
    assert NEG_INF < encoded[0] < POS_INF
    back = decode_floats(encoded, shift)
    assert back[0] == value and back.view(np.int64)[0] == np.array([value + 0.0]).view(np.int64)[0]


@given(st.floats(max_value=1.7e308, allow_infinity=False))
def test_the_successor_is_the_next_float(value):
    following = np.nextafter(value, np.inf)
    assert encode_floats(np.array([value]), 1)[0] == encode_floats(np.array([following]), 0)[0]


def test_no_value_between_the_neighbours_of_zero():
    tiny = np.array([-5e-324, -0.0, 0.0, 5e-324])
    assert encode_floats(tiny, 0).tolist() == [-1, 0, 0, 1]


@given(INTS, SHIFTS)
def test_ints_come_back(value, shift):
    assert decode_ints(np.array([value + shift]), shift).tolist() == [value]


def test_nothing():
    assert len(decode_ints(np.empty(0, np.int64), 1)) == len(encode_floats(np.empty(0), -1)) == 0
