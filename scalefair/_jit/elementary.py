"""Sine, cosine and exponential, branch-free so that LLVM turns loops over them into vectors.

Each reduces its argument to a small interval, evaluates a polynomial there and puts the quadrant
or the power of two back. The nearest integer n comes from adding 1.5·2^52 (1.5·2^23 in single
precision): the sum's last bits *are* n, which saves a conversion that older CPUs cannot do in
vectors. The polynomials interpolate the Taylor remainders at Chebyshev nodes.

Constants typed float32 are powers of two or belong to the single-precision variants; numba and
numpy alike give float32 ∘ float64 -> float64, so the exact ones serve both precisions.
"""

from __future__ import annotations

import numpy as np

from scalefair._jit._compile import kernel

FAST_LIMIT = np.float32(1e5)
"""|x| up to which the three-part reduction modulo π/2 is exact enough; libm beyond.

n ≤ 63,662 < 2^16, so n·PIO2_A and n·PIO2_B (36 bits or less each) are exact, and so is or is
compensated every difference. What PIO2_C leaves out, n·1.7e-39, is below 1e-18 of the smallest
reduced argument that any double of the range can have (the tests visit all of them).
"""

SHIFT = 6755399441055744.0
SHIFT_BITS = np.int64(0x4338000000000000)
SHIFT32 = np.float32(12582912.0)
SHIFT32_BITS = np.int32(0x4B400000)

TWO_OVER_PI = 0.6366197723675814
ONE_OVER_PI = 0.3183098861837907
PIO2_A = float.fromhex("0x1.921fb54440000p+0")
PIO2_B = float.fromhex("0x1.68c234c4c0000p-39")
PIO2_C = float.fromhex("0x1.98a2e03707345p-77")

LOG2_E = 1.4426950408889634
LN2_A = float.fromhex("0x1.62e42fefa3000p-1")
LN2_B = float.fromhex("0x1.3de6af278ece6p-42")
LOG2_E32 = np.float32(LOG2_E)
LN2_A32 = np.float32(0.693115234375)
LN2_B32 = np.float32(3.1946184945309415e-05)

HALF = np.float32(0.5)
ONE = np.float32(1.0)

# sin(r) = r + r³ S(r²) and cos(r) = 1 - r²/2 + r⁴ C(r²) for |r| ≤ π/4
S0, S1, S2 = -0.16666666666666666, 0.008333333333330948, -0.00019841269836758574
S3, S4, S5 = 2.755731610255244e-06, -2.5051131845003624e-08, 1.5918129294866608e-10
C0, C1, C2 = 0.041666666666666664, -0.0013888888888887398, 2.480158729876569e-05
C3, C4, C5 = -2.7557317271729793e-07, 2.08761462684032e-09, -1.1382632425521717e-11
# sin(r) = r + r³ W(r²) for |r| ≤ π/2
W0, W1, W2 = -0.16666666666666666, 0.008333333333333316, -0.00019841269841254966
W3, W4, W5 = 2.7557319219160833e-06, -2.505210761669045e-08, 1.6058977292642743e-10
W6, W7 = -7.643969663988074e-13, 2.7314368769379893e-15
S0_32, S1_32, S2_32 = map(np.float32, (-0.16666664, 0.008332748, -0.0001958789))
C0_32, C1_32, C2_32 = map(np.float32, (0.041666664, -0.0013888302, 2.4547942e-05))

# exp(r) = 1 + r + r² E(r) for |r| ≤ ln(2)/2
E0, E1, E2, E3 = 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326141
E4, E5, E6 = 0.0013888888888883752, 0.00019841269874800493, 2.4801587325533363e-05
E7, E8, E9 = 2.7557255425746435e-06, 2.7557273661348637e-07, 2.510520637395701e-08
E10 = 2.0914679376583935e-09
E0_32, E1_32, E2_32 = map(np.float32, (0.5, 0.16666578, 0.041666556))
E3_32, E4_32 = map(np.float32, (0.008363173, 0.0013926176))


@kernel
def sincos64(x: float) -> tuple[float, float]:
    """Return sin(x), cos(x) for |x| ≤ FAST_LIMIT."""
    shifted = np.float64(x * TWO_OVER_PI + SHIFT)
    n = shifted - SHIFT
    quadrant = shifted.view(np.int64)
    a = x - n * PIO2_A
    b = n * PIO2_B
    ab = a - b
    rest = ((a - ab) - b) - n * PIO2_C
    r = ab + rest
    rest = (ab - r) + rest
    s = r * r
    half = 0.5 * s
    c = 1.0 - half
    S = S0 + s * (S1 + s * (S2 + s * (S3 + s * (S4 + s * S5))))
    C = C0 + s * (C1 + s * (C2 + s * (C3 + s * (C4 + s * C5))))
    sine = r + (s * r * S + rest * c)
    cosine = c + (((1.0 - c) - half) + (s * s * C - r * rest))
    even = quadrant & 1 == 0
    first = sine if even else cosine
    second = cosine if even else sine
    return (first if quadrant & 2 == 0 else -first, second if (quadrant + 1) & 2 == 0 else -second)


@kernel
def cos64(x: float) -> float:
    """Return cos(x) for |x| ≤ FAST_LIMIT, by one polynomial instead of the two of `sincos64`.

    With x = (n + 1/2)π + r and |r| ≤ π/2, cos(x) = ∓sin(r) as n is even or odd.
    """
    shifted = np.float64((x * ONE_OVER_PI - 0.5) + SHIFT)
    n = shifted - SHIFT
    odd = n + n + 1.0
    r = ((x - odd * PIO2_A) - odd * PIO2_B) - odd * PIO2_C
    s = r * r
    W = W0 + s * (W1 + s * (W2 + s * (W3 + s * (W4 + s * (W5 + s * (W6 + s * W7))))))
    sine = r + r * s * W
    return sine if shifted.view(np.int64) & 1 else -sine


@kernel
def sincos32(x: float) -> tuple[np.float32, np.float32]:
    """Return sin(x), cos(x) for float32 |x| ≤ FAST_LIMIT: double reduction, single polynomial."""
    wide = np.float64(x)
    shifted = np.float64(wide * TWO_OVER_PI + SHIFT)
    n = shifted - SHIFT
    quadrant = np.int32(shifted.view(np.int64) & 3)
    r = np.float32((wide - n * PIO2_A) - n * PIO2_B)
    s = r * r
    sine = r + s * r * (S0_32 + s * (S1_32 + s * S2_32))
    cosine = (ONE - HALF * s) + s * s * (C0_32 + s * (C1_32 + s * C2_32))
    even = quadrant & 1 == 0
    first = sine if even else cosine
    second = cosine if even else sine
    return (first if quadrant & 2 == 0 else -first, second if (quadrant + 1) & 2 == 0 else -second)


@kernel
def exp64(x: float) -> float:
    """Return exp(x): 0 and infinity beyond the range, subnormals rounded once, NaN for NaN."""
    # Comparisons this way round leave NaN alone; both ends are beyond the last finite result.
    x = -746.0 if x < -746.0 else x
    x = 710.0 if x > 710.0 else x
    shifted = np.float64(x * LOG2_E + SHIFT)
    n = shifted - SHIFT
    power = shifted.view(np.int64) - SHIFT_BITS
    a = x - n * LN2_A
    b = n * LN2_B
    r = a - b
    rest = (a - r) - b
    E = E6 + r * (E7 + r * (E8 + r * (E9 + r * E10)))
    E = E0 + r * (E1 + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E)))))
    # Two factors, since 2^n alone leaves the exponent range before the result does.
    lower = power >> 1
    two_lower = np.int64((lower + 1023) << 52).view(np.float64)
    two_upper = np.int64((power - lower + 1023) << 52).view(np.float64)
    return (1.0 + (r + (r * r * E + rest))) * two_lower * two_upper


@kernel
def exp32(x: float) -> np.float32:
    """Return exp(x) for float32 x, evaluated in single precision; otherwise like `exp64`."""
    y = np.float32(x)
    y = np.float32(-104.0) if y < np.float32(-104.0) else y
    y = np.float32(89.0) if y > np.float32(89.0) else y
    shifted = np.float32(y * LOG2_E32 + SHIFT32)
    n = shifted - SHIFT32
    power = np.int32(shifted.view(np.int32) - SHIFT32_BITS)
    r = (y - n * LN2_A32) - n * LN2_B32
    E = E0_32 + r * (E1_32 + r * (E2_32 + r * (E3_32 + r * E4_32)))
    lower = np.int32(power >> 1)
    two_lower = np.int32((lower + 127) << 23).view(np.float32)
    two_upper = np.int32((power - lower + 127) << 23).view(np.float32)
    return (ONE + (r + r * r * E)) * two_lower * two_upper
