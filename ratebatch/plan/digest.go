package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Digest names the plan's content: the sha256 of its canonical form, in
// hexadecimal. Layout, comments, quotation marks and zeros at the end of
// numbers do not change it; the order of services, fields and rules does,
// because it can change a price.
func (p *Plan) Digest() string {
	c := *p
	c.file, c.skipAt = "", Position{}
	body, err := json.Marshal(&c) // struct order, no maps: the same plan gives the same bytes
	if err != nil {
		panic(fmt.Sprintf("plan: %v", err)) // a plan holds nothing that JSON cannot write
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
