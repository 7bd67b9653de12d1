package hashmap

import (
	"math/big"
)

// IntFrom is From as a raw quantity (scale 18): the least one of the step. A
// level with more than 18 decimals is met by the raw quantity above it. It is
// nil for the lowest step.
func (s *Step) IntFrom() *big.Int {
	if s.From == nil {
		return nil
	}
	return s.From.Shift(PriceScale).Ceil().BigInt()
}
