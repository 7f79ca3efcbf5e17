package parquet

import (
	"errors"
	"math/big"
	"strconv"
)

// maxDecimal is the greatest number of bytes of a decimal; writers use up to 32.
const maxDecimal = 64

var errDecimal = errors.New("a decimal that has no bytes, or more than are read")

// wholeDecimal decodes a big endian integer.
func wholeDecimal(b []byte) (int64, error) {
	if len(b) == 0 || len(b) > maxDecimal {
		return 0, errDecimal
	}
	v := int64(int8(b[0])) >> 7 // 0 or -1
	for i, x := range b {
		if i < len(b)-8 && x != byte(v) {
			return 0, errors.New("a decimal that int64 cannot hold")
		}
	}
	sign := v
	for _, x := range b[max(0, len(b)-8):] {
		v = v<<8 | int64(x)
	}
	if v>>63 != sign {
		return 0, errors.New("a decimal that int64 cannot hold")
	}
	return v, nil
}

// powers are the powers of ten that a float64 represents exactly.
var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// scaled is v / 10^scale, rounded once.
func scaled(v int64, scale int) float64 {
	if scale < len(powers) && v > -1<<53 && v < 1<<53 {
		return float64(v) / powers[scale]
	}
	return parseScaled(strconv.FormatInt(v, 10), scale)
}

// scaledBytes is a big endian integer / 10^scale, rounded once.
func scaledBytes(b []byte, scale int) (float64, error) {
	if v, err := wholeDecimal(b); err == nil {
		return scaled(v, scale), nil
	}
	if len(b) == 0 || len(b) > maxDecimal {
		return 0, errDecimal
	}
	v := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return parseScaled(v.String(), scale), nil
}

func parseScaled(digits string, scale int) float64 {
	v, err := strconv.ParseFloat(digits+"e-"+strconv.Itoa(scale), 64)
	if err != nil {
		panic(err) // cannot overflow: it has at most 155 digits
	}
	return v
}
