package pricing

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// write puts the expression into words. Everything in it is a number made
// here or a string literal written by quote.
func write(in Input, dims *dimensions, levels []*big.Int, f form, coefficients []coefficient, numbers []int, cells map[uint64]int, inSQL int) Expression {
	var common []string
	add := func(expression, alias string) { common = append(common, expression+" AS "+alias) }
	add("reinterpretAsInt128(qty)", "q_")

	add(lookup(combination(in, dims, levels), dims, cells, numbers), "c_")

	maxima := make([]string, len(coefficients))
	for i, c := range coefficients {
		maxima[i] = "'" + c.qmax.String() + "'"
	}
	out := Expression{Form: f.name, Coefficients: len(coefficients)}
	for _, c := range coefficients {
		out.Uses = append(out.Uses, Use{Rule: c.rule, Bucket: c.bucket, Zero: !c.inGo && c.a.IsZero() && c.b.IsZero(), InGo: c.inGo})
	}
	changed, most := sqltext.String(ChangedMessage), element(maxima, "Int128", "c_")
	out.Guard = fmt.Sprintf("throwIf(c_ = 0, %s) = 0 AND throwIf(q_ > %[2]s OR -q_ > %[2]s, %[1]s) = 0", changed, most)
	out.Known = fmt.Sprintf("c_ != 0 AND q_ <= %[1]s AND -q_ <= %[1]s", most)
	out.Inner = strings.Join(common, ",\n    ")
	if inSQL < len(coefficients) {
		out.GoGuard = fmt.Sprintf("%s AND c_ > %d", out.Guard, inSQL)
		out.GoKnown = fmt.Sprintf("%s AND c_ > %d", out.Known, inSQL)
		out.Guard = fmt.Sprintf("%s AND c_ <= %d", out.Guard, inSQL)
		out.Known = fmt.Sprintf("%s AND c_ <= %d", out.Known, inSQL)
	}
	out.Columns = arithmetic(f, coefficients)
	return out
}

// combination numbers the row's combination: window, scope class, values of
// the fields and, if there are levels, the step.
func combination(in Input, dims *dimensions, levels []*big.Int) string {
	var terms []string
	for _, boundary := range in.Boundaries {
		terms = append(terms, fmt.Sprintf("(begin >= toDateTime(%d, 'UTC'))", boundary.Unix()))
	}
	number := "toUInt64(0)"
	if len(terms) > 0 {
		number = "toUInt64(" + strings.Join(terms, " + ") + ")"
	}
	number = fmt.Sprintf("%s * %d", number, dims.scopes)
	if len(in.Scopes) > 0 {
		number = fmt.Sprintf("(%s + %s)", number, position("scope", in.Scopes))
	}
	for field, ordered := range dims.ordered {
		number = fmt.Sprintf("(%s) * %d + %s", number, len(ordered)+1, position(fmt.Sprintf("f_%d", field), ordered))
	}
	terms = nil
	for _, level := range levels {
		terms = append(terms, fmt.Sprintf("(q_ >= toInt128('%s'))", level))
	}
	if len(terms) > 0 {
		number = fmt.Sprintf("(%s) * %d + (%s)", number, dims.steps, strings.Join(terms, " + "))
	}
	return number
}

// arithmetic is the columns from the raw quantity q_ and the coefficient's
// number c_ to price, rule and bucket.
func arithmetic(f form, coefficients []coefficient) string {
	var common []string
	add := func(expression, alias string) { common = append(common, expression+" AS "+alias) }
	as, bs, rules, buckets := columns(f, coefficients)
	switch f.name {
	case "exact", "int128":
		add(element(as, "Int128", "c_"), "a_")
		add("a_ * q_"+plus(bs, "Int128"), "p_")
		if f.k == 0 {
			add("reinterpret(p_, 'Decimal(38, 18)')", "price")
			break
		}
		d := fmt.Sprintf("toInt128('%s')", f.d)
		add(fmt.Sprintf("p_ + toInt128('%s')", new(big.Int).Div(f.d, two)), "h_")
		add(fmt.Sprintf("intDiv(h_, %s)", d), "t_")
		add(fmt.Sprintf("h_ - t_ * %s", d), "r_")
		add("t_ - (r_ < 0)", "e_")
		// A remainder of 0 is an exact tie: the even neighbour is right.
		add("reinterpret(e_ - bitAnd(e_, toInt128(r_ = 0)), 'Decimal(38, 18)')", "price")
	default:
		add(element(as, "Int256", "c_"), "a_")
		add(fmt.Sprintf("a_ * toInt256(q_)%s + toInt256('%s')", plus(bs, "Int256"), new(big.Int).Div(f.d, two)), "h_")
		add(fmt.Sprintf("reinterpretAsInt128(bitShiftRight(h_ * toInt256('%s'), %d))", f.m, f.n), "t_")
		add(fmt.Sprintf("reinterpretAsInt128(h_) - t_ * toInt128('%s')", f.d), "r_")
		add(fmt.Sprintf("t_ + (r_ >= toInt128('%s')) - (r_ < 0)", f.d), "e_")
		add(fmt.Sprintf("reinterpret(e_ - bitAnd(e_, toInt128(r_ = 0 OR r_ = toInt128('%s'))), 'Decimal(38, 18)')", f.d), "price")
	}
	add(element(rules, "String", "c_"), "rule")
	if slices.ContainsFunc(buckets, func(b string) bool { return b != "''" }) {
		add(element(buckets, "String", "c_"), "bucket")
	} else {
		add("''", "bucket")
	}
	return strings.Join(common, ",\n    ")
}

// position is the 1-based place of a LowCardinality column's value among
// values, 0 when it is none of them. transform runs on the column's dictionary.
func position(column string, values []string) string {
	places := make([]string, len(values))
	quoted := make([]string, len(values))
	for i, v := range values {
		places[i] = fmt.Sprint(i + 1)
		quoted[i] = sqltext.String(v)
	}
	return fmt.Sprintf("transform(%s, [%s], CAST([%s] AS Array(UInt64)), toUInt64(0))", column, strings.Join(quoted, ","), strings.Join(places, ","))
}

// lookup maps the number of a combination to the number of its coefficient.
func lookup(number string, dims *dimensions, cells map[uint64]int, numbers []int) string {
	if size, _ := dims.size(); size <= maxDense {
		table := make([]string, size)
		for i := range table {
			table[i] = "0"
		}
		for n, at := range cells {
			table[n] = fmt.Sprint(numbers[at])
		}
		return fmt.Sprintf("arrayElement(CAST([%s] AS Array(UInt32)), 1 + %s)", strings.Join(table, ","), number)
	}
	keys := make([]uint64, 0, len(cells))
	for n := range cells {
		keys = append(keys, n)
	}
	slices.Sort(keys)
	from := make([]string, len(keys))
	to := make([]string, len(keys))
	for i, n := range keys {
		from[i] = fmt.Sprint(n)
		to[i] = fmt.Sprint(numbers[cells[n]])
	}
	return fmt.Sprintf("transform(%s, CAST([%s] AS Array(UInt64)), CAST([%s] AS Array(UInt32)), toUInt32(0))", number, strings.Join(from, ","), strings.Join(to, ","))
}

// columns are the coefficients as literals, in the order of their numbers.
func columns(f form, coefficients []coefficient) (as, bs, rules, buckets []string) {
	for _, c := range coefficients {
		a, b := new(big.Int), new(big.Int)
		if !c.inGo {
			a, b = f.ints(c.a, c.b)
		}
		as = append(as, "'"+a.String()+"'")
		bs = append(bs, "'"+b.String()+"'")
		rules = append(rules, sqltext.String(c.rule))
		buckets = append(buckets, sqltext.String(c.bucket))
	}
	return as, bs, rules, buckets
}

// plus adds the fixed part, if any coefficient has one.
func plus(bs []string, as string) string {
	if !slices.ContainsFunc(bs, func(b string) bool { return b != "'0'" }) {
		return ""
	}
	return " + " + element(bs, as, "c_")
}

// element reads one of the constants; a single one needs no array.
func element(values []string, as, index string) string {
	if slices.Max(values) == slices.Min(values) {
		return fmt.Sprintf("CAST(%s AS %s)", values[0], as)
	}
	return fmt.Sprintf("arrayElement(CAST([%s] AS Array(%s)), %s)", strings.Join(values, ","), as, index)
}

// ComboColumns are the columns that tell combinations apart, over the same
// usage as the expression: window, class and fields, in this order.
func ComboColumns(boundaries []time.Time, scopes []string, fields int) []string {
	window := "toUInt16(0)"
	if len(boundaries) > 0 {
		var terms []string
		for _, b := range boundaries {
			terms = append(terms, fmt.Sprintf("(begin >= toDateTime(%d, 'UTC'))", b.Unix()))
		}
		window = "toUInt16(" + strings.Join(terms, " + ") + ")"
	}
	class := "toUInt32(0)"
	if len(scopes) > 0 {
		class = "toUInt32(" + position("scope", scopes) + ")"
	}
	out := []string{window, class}
	for i := range fields {
		out = append(out, fmt.Sprintf("f_%d", i))
	}
	return out
}
