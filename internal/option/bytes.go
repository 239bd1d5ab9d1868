package option

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a flag with a number of bytes.
type Bytes int64

// String has the number as Set reads it, in the largest unit without a fraction.
func (b Bytes) String() string {
	n := int64(b)
	for i, unit := range []string{"T", "G", "M", "K"} {
		if size := int64(1) << (40 - 10*i); n != 0 && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// Set reads a number of bytes such as 64, 4K, 1M or 2G; K is 1024. A B behind it is allowed.
func (b *Bytes) Set(s string) error {
	digits, shift := strings.TrimRight(strings.ToUpper(s), "B"), 0
	for i, unit := range []string{"K", "M", "G", "T"} {
		if d, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = d, 10*(i+1)
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a number such as 64, 4K or 1M", s)
	}
	*b = Bytes(n << shift)
	return nil
}
