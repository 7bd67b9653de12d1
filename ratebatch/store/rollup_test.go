package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

type (
	world   = storetest.World
	tierRow = storetest.TierRow
)

var (
	kinds    = storetest.Kinds
	readTier = storetest.ReadTier
)

var regions atomic.Int64

// Any samples at all: duplicates, clocks that go back, intervals across one or
// many buckets, of no length, on edges; two hosts; resizes; values unknown.
func TestTiersEqualADirectComputation(t *testing.T) {
	s := storetest.Fresh(t)
	base := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	storetest.Checks(t, 25)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		region := fmt.Sprintf("region-%d", regions.Add(1))
		w := randomWorld(region, base).Draw(r, "world")
		repeated(w).Insert(tb, s)
		rollup(tb, s, base)
		w.Compare(tb, s, region)
	})
}

// rollup recomputes everything around base.
func rollup(t testing.TB, s *store.Store, base time.Time) {
	t.Helper()
	if _, err := s.Rollup(t.Context(), base.Add(-24*time.Hour), base.Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// repeated is the same world in another order with every third sample sent twice.
func repeated(w world) world {
	return world{Ports: repeat(w.Ports), Instances: repeat(w.Instances), Disks: repeat(w.Disks)}
}

func repeat[T any](rows []T) []T {
	random := rand.New(rand.NewPCG(1, uint64(len(rows))))
	out := slices.Clone(rows)
	for i := 0; i < len(rows); i += 3 {
		out = append(out, rows[i])
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// rapidTB lets helpers written for testing.TB fail one case of rapid.Check
// instead of the whole test, so that rapid can shrink it.
type rapidTB struct {
	testing.TB
	rapid *rapid.T
}

func (r rapidTB) Fatal(args ...any)                 { r.rapid.Fatal(args...) }
func (r rapidTB) Fatalf(format string, args ...any) { r.rapid.Fatalf(format, args...) }

func randomWorld(region string, base time.Time) *rapid.Generator[world] {
	return rapid.Custom(func(t *rapid.T) world {
		var w world
		sequence := uint64(0)
		edge := rapid.Custom(func(t *rapid.T) int64 {
			switch rapid.IntRange(0, 3).Draw(t, "place") {
			case 0:
				return rapid.Int64Range(0, 40).Draw(t, "edge") * 300_000
			case 1:
				return rapid.Int64Range(0, 40).Draw(t, "near an edge")*300_000 + rapid.Int64Range(-1, 1).Draw(t, "by")
			default:
				return rapid.Int64Range(0, 12_000_000).Draw(t, "anywhere")
			}
		})
		length := rapid.Custom(func(t *rapid.T) int64 {
			switch rapid.IntRange(0, 5).Draw(t, "kind of length") {
			case 0:
				return 0
			case 1:
				return rapid.Int64Range(-60_000, 1).Draw(t, "clock set back")
			case 2:
				return rapid.Int64Range(3_000_000, 20_000_000).Draw(t, "hours")
			case 3:
				return 60_000
			default:
				return rapid.Int64Range(1, 700_000).Draw(t, "minutes")
			}
		})
		value := rapid.Uint64Range(0, 1<<56)
		maybe := func(name string) *uint64 {
			if rapid.IntRange(0, 3).Draw(t, name+" known") == 0 {
				return nil
			}
			v := value.Draw(t, name)
			return &v
		}
		taken := map[int64]bool{} // of equal ends it would be open which is last
		common := func() store.Sample {
			sequence++
			at := base.Add(time.Duration(edge.Draw(t, "end")) * time.Millisecond)
			for taken[at.UnixMilli()] {
				at = at.Add(time.Millisecond)
			}
			taken[at.UnixMilli()] = true
			instance := rapid.IntRange(1, 2).Draw(t, "instance")
			flavor := rapid.IntRange(1, 2).Draw(t, "flavor")
			sample := store.Sample{
				Region: region, Host: fmt.Sprintf("host-%d", rapid.IntRange(1, 2).Draw(t, "host")),
				Epoch: 7, Sequence: sequence,
				Begin: at.Add(-time.Duration(length.Draw(t, "length")) * time.Millisecond), At: at,
				InstanceUUID: uuid.UUID{15: byte(instance)}, ProjectID: fmt.Sprintf("project-%d", rapid.IntRange(1, 2).Draw(t, "project")),
				UserID: "user", FlavorName: fmt.Sprintf("flavor-%d", flavor), VCPUs: uint16(flavor), ImageID: "image",
				InstanceName: fmt.Sprintf("vm-%d-%d", instance, rapid.IntRange(1, 2).Draw(t, "name")),
			}
			if rapid.IntRange(0, 4).Draw(t, "original producer") == 0 {
				sample.Epoch, sample.Sequence = 0, 0
			}
			return sample
		}
		for range rapid.IntRange(0, 30).Draw(t, "ports") {
			w.Ports = append(w.Ports, store.PortSample{
				Sample: common(), PortUUID: uuid.UUID{0: 1, 15: byte(rapid.IntRange(1, 2).Draw(t, "port"))}, NetworkUUID: uuid.UUID{0: 2, 15: byte(rapid.IntRange(1, 2).Draw(t, "network"))},
				RxBytes: value.Draw(t, "rx"), TxBytes: value.Draw(t, "tx"),
			})
		}
		for range rapid.IntRange(0, 30).Draw(t, "instances") {
			w.Instances = append(w.Instances, store.InstanceSample{
				Sample: common(), CPUPct: decimal.New(rapid.Int64Range(0, 10_000).Draw(t, "cpu"), -2),
				MemoryActualBytes: maybe("actual"), MemoryRSSBytes: maybe("rss"), MemoryUsableBytes: maybe("usable"),
			})
		}
		for range rapid.IntRange(0, 30).Draw(t, "disks") {
			w.Disks = append(w.Disks, store.DiskSample{
				Sample: common(), Device: fmt.Sprintf("vd%c", 'a'+rune(rapid.IntRange(0, 1).Draw(t, "device"))),
				ReadBytes: maybe("read"), WriteBytes: maybe("write"), ReadRequests: maybe("reads"), WriteRequests: maybe("writes"),
				CapacityBytes: maybe("capacity"), AllocationBytes: maybe("allocation"), PhysicalBytes: maybe("physical"),
			})
		}
		return w
	})
}

// refresh waits for all six views.
func refresh(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.RefreshTiers(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The refreshable views run the same text over a window that they find
// themselves: all of the raw tier after a start, later only touched buckets.
func TestViewsEqualADirectComputation(t *testing.T) {
	s := storetest.Open(t)
	base := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	storetest.Checks(t, 5)
	rapid.Check(t, func(r *rapid.T) {
		tb := rapidTB{t, r}
		region := fmt.Sprintf("region-%d", regions.Add(1))
		first := randomWorld(region, base).Draw(r, "world")
		repeated(first).Insert(tb, s)
		refresh(tb, s)
		first.Compare(tb, s, region)
	})
}
