package command

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/trainer"
)

func TestVersionNamesProgramAndFormat(t *testing.T) {
	d := disk(t)
	v := object(t, must(t, d, "version --json"))
	if v["version"] != version.Version || v["format"].(float64) < 1 || v["kernels"] == "" {
		t.Errorf("%v", v)
	}
	if text := must(t, d, "version").stdout; !strings.HasPrefix(text, "hopfeed "+version.Version+" (format ") ||
		strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}

func TestLargeLossesArePrintedWithSixDigits(t *testing.T) {
	for loss, want := range map[float64]string{0.12345: "0.1235", 999.5: "999.5000",
		13392522598188706078366324307787776: "1.33925e+34", -2e9: "-2e+09"} {
		if got := trainer.LossText(loss); got != want {
			t.Errorf("%v: %s, want %s", loss, got, want)
		}
	}
}
