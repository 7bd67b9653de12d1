package pricing

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// TierCombo is a combination of a metric with tiers. Of its steps those that
// are unpriced have the tariff's prices, if there is one.
type TierCombo struct {
	Combo
	Tariff *hashmap.Tariff
}

// TierInput is what a TierExpression is made from. Fields name the columns f_0,
// f_1, …, of which accounts by attribute take their value.
type TierInput struct {
	Input
	Metric string
	Names  []string // of the fields
	Combos []TierCombo
}

// TierExpression is the price of a metric with tiers as SQL, in the steps that a
// pass takes: Inner over usage says under which tariff a row is and which account
// it draws on; per period and account that is summed up, with Edges; from the
// sums a row's tier follows, and Columns are its price. Rows of a period that
// crosses an edge are cut at the edges in between.
type TierExpression struct {
	Inner   string // q_, t_ (the slot: tariffs first, then buckets), account_
	Tiered  string // condition over t_: the row has a tariff
	Guard   string // throws on usage that was not folded
	Known   string // leaves it out
	PerRow  bool   // accounts are not all the scope's: they must be compared too
	Columns string // price, rule and bucket over q_ and c_
	Form    string
	Uses    []Use

	tariffs []*hashmap.Tariff
	offsets []string
}

// slot is what a row can be under: a tariff, or a bucket with its reason.
type slot struct {
	tariff       *hashmap.Tariff
	bucket, rule string
}

// BuildTiers writes the expression for one metric. Combos must be distinct.
func BuildTiers(in TierInput) (TierExpression, error) {
	plain := in.Input
	plain.Combos = make([]Combo, len(in.Combos))
	largest := new(big.Int)
	for i, c := range in.Combos {
		plain.Combos[i] = c.Combo
		for _, q := range []*big.Int{raw(c.Min), raw(c.Max)} {
			if q.CmpAbs(largest) > 0 {
				largest.Abs(q)
			}
		}
	}
	levels, err := unionLevels(plain.Combos)
	if err != nil {
		return TierExpression{}, err
	}
	dims := newDimensions(plain, len(levels))
	slots, cells, err := tierSlots(in.Combos, levels, dims)
	if err != nil {
		return TierExpression{}, err
	}
	// Tariffs get the lowest numbers, so that one comparison tells them.
	order := make([]int, len(slots))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return boolInt(slots[a].tariff == nil) - boolInt(slots[b].tariff == nil) })
	numbers := make([]int, len(slots))
	var e TierExpression
	var coefficients []coefficient
	for position, at := range order {
		numbers[at] = position + 1
		s := slots[at]
		e.offsets = append(e.offsets, fmt.Sprint(len(coefficients)))
		if s.tariff == nil {
			coefficients = append(coefficients, coefficient{bucket: s.bucket, rule: s.rule, qmax: largest})
			continue
		}
		e.tariffs = append(e.tariffs, s.tariff)
		for tier, cost := range s.tariff.Costs {
			coefficients = append(coefficients, coefficient{a: cost, rule: s.tariff.Rule(tier), qmax: largest})
		}
	}
	for _, c := range coefficients {
		e.Uses = append(e.Uses, Use{Rule: c.rule, Bucket: c.bucket}) // a tier that costs nothing is meant to
	}
	account, err := e.account(in)
	if err != nil {
		return e, err
	}
	e.Inner = "reinterpretAsInt128(qty) AS q_,\n    " + lookup(combination(plain, dims, levels), dims, cells, numbers) + " AS t_,\n    " + account + " AS account_"
	e.Tiered = fmt.Sprintf("t_ <= %d", len(e.tariffs))
	e.Guard = fmt.Sprintf("throwIf(t_ = 0 OR q_ > toInt128('%[1]s') OR -q_ > toInt128('%[1]s'), %[2]s) = 0", largest, sqltext.String(ChangedMessage))
	e.Known = fmt.Sprintf("t_ != 0 AND q_ <= toInt128('%[1]s') AND -q_ <= toInt128('%[1]s')", largest)
	e.Form, e.Columns = tierArithmetic(coefficients, in.Combos)
	return e, nil
}

// tierSlots finds what rows can be under, and for each number of a combination
// which of them.
func tierSlots(combos []TierCombo, levels []*big.Int, dims *dimensions) ([]slot, map[uint64]int, error) {
	var slots []slot
	cells := map[uint64]int{}
	for _, c := range combos {
		for step := range len(levels) + 1 {
			if _, seen := reach(c.Combo, levels, step); !seen {
				continue
			}
			s := slot{bucket: string(hashmap.Unpriced)}
			switch f := c.Folded; {
			case f.Reject != "":
				s = slot{bucket: string(hashmap.Rejected), rule: f.Reject}
			case f.PerPoint != "":
				s = slot{bucket: string(hashmap.Rejected), rule: f.PerPoint}
			default:
				switch x := stepOf(f, levels, step); {
				case x.Reject != "":
					s = slot{bucket: string(hashmap.Rejected), rule: x.Reject}
				case x.Skip:
					s = slot{bucket: string(hashmap.Skipped)}
				case c.Tariff != nil:
					s = slot{tariff: c.Tariff}
				}
			}
			at := slices.Index(slots, s)
			if at < 0 {
				at = len(slots)
				slots = append(slots, s)
			}
			number, err := dims.number(c.Combo, step)
			if err != nil {
				return nil, nil, err
			}
			cells[number] = at
		}
	}
	if len(slots) == 0 {
		return nil, nil, errors.New("no combinations")
	}
	return slots, cells, nil
}

// account is the SQL of what hashmap.Tariff.Account says in Go.
func (e *TierExpression) account(in TierInput) (string, error) {
	ways := map[string][]string{}
	for i, t := range e.tariffs {
		ways[t.Per] = append(ways[t.Per], fmt.Sprint(i+1))
	}
	text := func(per string) (string, error) {
		prefix := in.Metric + "/" + per + "="
		switch per {
		case plan.PerScope:
			return sqltext.String(in.Metric), nil
		case plan.PerResource:
			return fmt.Sprintf("concat(%s, resource)", sqltext.String(prefix)), nil
		}
		field := slices.Index(in.Names, per)
		if field < 0 {
			return "", fmt.Errorf("tiers per %s: the usage has no column for it", per)
		}
		return fmt.Sprintf("concat(%s, toString(f_%d))", sqltext.String(prefix), field), nil
	}
	var branches []string
	for _, per := range slices.Sorted(func(yield func(string) bool) {
		for per := range ways {
			if !yield(per) {
				return
			}
		}
	}) {
		one, err := text(per)
		if err != nil {
			return "", err
		}
		e.PerRow = e.PerRow || per != plan.PerScope
		if len(ways) == 1 {
			return one, nil
		}
		branches = append(branches, fmt.Sprintf("t_ IN (%s), %s", strings.Join(ways[per], ","), one))
	}
	if len(branches) == 0 {
		return "''", nil
	}
	return "multiIf(" + strings.Join(branches, ", ") + ", '')", nil
}

// Tariffs are those that occur, in the order of their slots from 1 on.
func (e *TierExpression) Tariffs() []*hashmap.Tariff { return e.tariffs }

// Edges is the array of the edges, as raw quantities, of the tariff whose slot is
// in the column.
func (e *TierExpression) Edges(column string) string {
	lists := make([]string, len(e.tariffs))
	for i, t := range e.tariffs {
		edges := make([]string, len(t.Edges))
		for j, edge := range t.Edges {
			edges[j] = raw(edge).String()
		}
		lists[i] = "[" + strings.Join(edges, ",") + "]"
	}
	if len(lists) == 1 {
		return fmt.Sprintf("CAST('%s', 'Array(Int128)')", lists[0])
	}
	return fmt.Sprintf("arrayElement(CAST('[%s]', 'Array(Array(Int128))'), %s)", strings.Join(lists, ","), column)
}

// IsVolume is a condition: the tariff whose slot is in the column is by volume.
func (e *TierExpression) IsVolume(column string) string {
	var numbers []string
	for i, t := range e.tariffs {
		if t.Kind == plan.Volume {
			numbers = append(numbers, fmt.Sprint(i+1))
		}
	}
	switch len(numbers) {
	case 0:
		return "0"
	case len(e.tariffs):
		return "1"
	}
	return fmt.Sprintf("%s IN (%s)", column, strings.Join(numbers, ","))
}

// Coefficient is c_ for a slot and the number of a tier, from 1; of buckets the
// tier is 1.
func (e *TierExpression) Coefficient(slot, tier string) string {
	if len(e.offsets) == 1 {
		return fmt.Sprintf("toUInt32(%s)", tier)
	}
	return fmt.Sprintf("toUInt32(arrayElement(CAST([%s] AS Array(UInt32)), %s) + %s)", strings.Join(e.offsets, ","), slot, tier)
}

// Pieces is SQL: the pieces (tier from 1, raw quantity) that a row of graduated
// tiers is cut into, from raw, its quantity, hi, what its account has used with it,
// and edges, of its tariff; all of Int128. What is 0 or less is one piece, in the
// tier that follows.
func Pieces(raw, hi, edges string) string {
	return fmt.Sprintf(`if(%[1]s > 0, arrayFilter(x -> x.2 > 0, arrayMap((i, lower, upper) -> (toUInt32(i), least(%[2]s, upper) - greatest(%[2]s - %[1]s, lower)),
                                 arrayEnumerate(upper_), arrayPushFront(%[3]s, toInt128(0)), arrayPushBack(%[3]s, toInt128('170141183460469231731687303715884105727')) AS upper_)),
                   [(toUInt32(1 + arrayCount(x -> x <= %[2]s, %[3]s)), %[1]s)])`, raw, hi, edges)
}

// tierArithmetic chooses the cheapest form that is exact for all of the metric's
// quantities. Unlike other prices those of tiers cannot be left to Go row by row,
// so the last form holds whatever a plan and a quantity can be.
func tierArithmetic(coefficients []coefficient, combos []TierCombo) (name, columns string) {
	var steps []Combo
	for _, c := range coefficients {
		one := Combo{Folded: hashmap.Folded{Steps: []hashmap.Step{{A: c.a}}}}
		for _, x := range combos {
			one.Min, one.Max = x.Min, x.Max
			steps = append(steps, one)
		}
	}
	f := planForm(steps, nil)
	fits := true
	for _, c := range coefficients {
		s := hashmap.Step{A: c.a}
		if scaleOf(s) > maxScale {
			fits = false
			continue
		}
		bound := f.bound(s, c.qmax)
		fits = fits && bound.Cmp(f.max) < 0 && bound.Cmp(new(big.Int).Mul(priceMax, f.d)) < 0
	}
	if fits {
		return f.name, arithmetic(f, coefficients)
	}
	return "wide", wide(coefficients)
}

// wide divides 256-bit integers, which costs ten times as much, and rejects
// prices of 1e20 and more row by row.
func wide(coefficients []coefficient) string {
	var k int32
	for _, c := range coefficients {
		k = max(k, fraction(c.a))
	}
	f := form{k: k, d: pow10(k)}
	as, _, rules, buckets := columns(f, coefficients)
	limits := make([]string, len(coefficients))
	for i, c := range coefficients {
		limits[i] = fmt.Sprintf("'%s'", new(big.Int).Sub(int128Max, big.NewInt(1))) // beyond every quantity
		if a, _ := f.ints(c.a, c.b); a.Sign() != 0 {
			// The least |q| with round(a·q / d) = 10^38; half a unit below is a tie and goes up.
			n := new(big.Int).Mul(priceMax, two)
			n.Sub(n, big.NewInt(1)).Mul(n, f.d)
			d := new(big.Int).Mul(new(big.Int).Abs(a), two)
			n.Add(n, d).Sub(n, big.NewInt(1)).Div(n, d)
			if n.Cmp(int128Max) < 0 {
				limits[i] = "'" + n.String() + "'"
			}
		}
	}
	var out []string
	add := func(expression, alias string) { out = append(out, expression+" AS "+alias) }
	limit := element(limits, "Int128", "c_")
	add(fmt.Sprintf("(q_ >= %[1]s OR -q_ >= %[1]s)", limit), "beyond_")
	add(element(as, "Int256", "c_")+" * if(beyond_, toInt256(0), toInt256(q_))", "x_")
	d := fmt.Sprintf("toInt256('%s')", f.d)
	add(fmt.Sprintf("intDiv(x_, %s)", d), "t0_")
	add(fmt.Sprintf("abs(x_ - t0_ * %s) * 2", d), "r_")
	add(fmt.Sprintf("t0_ + sign(x_) * (r_ > %[1]s OR (r_ = %[1]s AND reinterpretAsInt128(t0_) %% 2 != 0))", d), "e_")
	add("reinterpret(reinterpretAsInt128(e_), 'Decimal(38, 18)')", "price")
	add(fmt.Sprintf("if(beyond_, %s, %s)", sqltext.String(hashmap.OutOfRange), element(rules, "String", "c_")), "rule")
	add(fmt.Sprintf("if(beyond_, %s, %s)", sqltext.String(string(hashmap.Rejected)), element(buckets, "String", "c_")), "bucket")
	return strings.Join(out, ",\n    ")
}
