package units

import (
	"math"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/rng"
)

func TestParseBytesReadsWhatPeopleWrite(t *testing.T) {
	for _, c := range []struct {
		s    string
		want Bytes
	}{
		{"0", 0}, {"4096", 4096}, {"7B", 7}, {" 12 ", 12},
		{"1KiB", 1 << 10}, {"1.5GiB", 3 << 29}, {"512MiB", 512 << 20}, {"2TiB", 2 << 40},
		{"200MB", 200e6}, {"1kB", 1e3}, {"1KB", 1e3}, {"2GB", 2e9}, {"3TB", 3e12},
		{"1K", 1 << 10}, {"1M", 1 << 20}, {"0.5G", 1 << 29}, {"1T", 1 << 40},
		{"1.5 GiB", 3 << 29}, {"1e3", 1000}, {"0.1KiB", 102}, {"8388607TiB", 8388607 << 40},
	} {
		if got, err := ParseBytes(c.s); got != c.want || err != nil {
			t.Errorf("%q is %d (%v), want %d", c.s, int64(got), err, int64(c.want))
		}
	}
}

func TestParseBytesRefusesWhatIsNoSize(t *testing.T) {
	for _, s := range []string{"", " ", "-1", "-1GiB", "NaN", "inf", "+InfGiB", "GiB", "1.2.3", "1,5GiB",
		"12 parsecs", "1 iB", "1gib", "1GiBs", "8388608TiB", "9223372036854775808", "1e30"} {
		got, err := ParseBytes(s)
		if err == nil {
			t.Errorf("%q is taken for %d", s, int64(got))
		} else if !strings.Contains(err.Error(), `"`+s+`"`) {
			t.Errorf("the error for %q does not name it: %v", s, err)
		}
	}
}

func TestBytesPrintThreeDigitsOrAllOfTheWholeNumber(t *testing.T) {
	for _, c := range []struct {
		b    Bytes
		want string
	}{
		{0, "0 B"}, {1, "1 B"}, {1023, "1023 B"}, {1024, "1 KiB"}, {1536, "1.5 KiB"},
		{1<<20 - 1, "1024 KiB"}, {1 << 20, "1 MiB"}, {12345678, "11.8 MiB"},
		{1023897, "999.9 KiB"}, {102399, "100 KiB"}, {3 << 29, "1.5 GiB"}, {5 << 40, "5 TiB"},
		{12345 << 40, "12345 TiB"}, {math.MaxInt64, "8388608 TiB"}, {-5, "-5 B"},
	} {
		if got := c.b.String(); got != c.want {
			t.Errorf("%d prints as %q, want %q", int64(c.b), got, c.want)
		}
	}
}

func TestBytesComeBackFromPrintAsFarAsTheDigitsGo(t *testing.T) {
	const seed = 11
	for i := range uint64(20000) {
		b := Bytes(rng.Hash(seed, i) >> (1 + rng.Hash(seed+1, i)%63))
		if b >= 8388607<<40 {
			continue // may round up to 2^63, which is no int64
		}
		back, err := ParseBytes(b.String())
		if err != nil {
			t.Fatalf("seed %d: %d prints as %q: %v", seed, int64(b), b, err)
		}
		// Three digits are exact to half a unit in 100; the parse cuts fractions off.
		if diff := math.Abs(float64(back) - float64(b)); diff > 0.005*float64(b)+1 || b < 1024 && back != b {
			t.Fatalf("seed %d: %d prints as %q and comes back as %d", seed, int64(b), b, int64(back))
		}
	}
}

func TestBytesIsAFlagValue(t *testing.T) {
	b := Bytes(1)
	if err := b.Set("2KiB"); err != nil || b != 2048 {
		t.Errorf("set to %d, %v", int64(b), err)
	}
	if err := b.Set("much"); err == nil {
		t.Errorf("%q is taken for %d", "much", int64(b))
	}
	if b.Type() == "" {
		t.Error("the type has no name for the help text")
	}
}

func TestRatesAreSizesBySecond(t *testing.T) {
	for _, c := range []struct {
		s       string
		want    Rate
		printed string
	}{
		{"12GiB/s", 12 << 30, "12 GiB/s"}, {" 1.5 GiB/s", 3 << 29, "1.5 GiB/s"}, {"100/s", 100, "100 B/s"},
		{"6.9GB/s", 6.9e9, "6.43 GiB/s"},
	} {
		var got Rate
		if err := got.Set(c.s); got != c.want || err != nil || got.String() != c.printed {
			t.Errorf("%q is %d, %s (%v), want %d, %s", c.s, int64(got), got, err, int64(c.want), c.printed)
		}
	}
	for _, s := range []string{"", "/s", "12GiB", "12GiB/h", "-1MB/s", "12GiB/ss"} {
		if got, err := ParseRate(s); err == nil || !strings.Contains(err.Error(), `"`+s+`"`) {
			t.Errorf("%q is taken for %d (%v)", s, int64(got), err)
		}
	}
}
