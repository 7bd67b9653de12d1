package hashmap

import (
	"math/big"
	"testing"
)

func TestDivRoundIsHalfEven(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ x, d, want int64 }{
		{5, 10, 0}, {15, 10, 2}, {25, 10, 2}, {-5, 10, 0}, {-15, 10, -2}, {-25, 10, -2},
		{14, 10, 1}, {16, 10, 2}, {-14, 10, -1}, {-16, 10, -2}, {0, 10, 0},
	} {
		if got := divRound(big.NewInt(tt.x), big.NewInt(tt.d)); got.Int64() != tt.want {
			t.Errorf("divRound(%d, %d) = %s, want %d", tt.x, tt.d, got, tt.want)
		}
	}
}
