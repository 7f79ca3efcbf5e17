package machine

import (
	"errors"
	"strings"
	"testing"
)

func TestWhatExceedsALimitIsRefusedWithWhatItNeeds(t *testing.T) {
	limit := Limit{ProgramBytes + 1<<20, "--memory"}
	if err := limit.Fits("a list", 1<<20); err != nil {
		t.Error(err)
	}
	err := limit.Fits("a list", 1<<20+1)
	if !errors.Is(err, ErrDoesNotFit) || !strings.Contains(err.Error(), "a list does not fit: needs ") ||
		!strings.Contains(err.Error(), "--memory allows 49 MiB") {
		t.Errorf("%v", err)
	}
	if err := (Limit{}).Fits("anything", 1<<60); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

func TestTheBudgetLeavesAFifth(t *testing.T) {
	if b, most := Budget(), Memory(); b.Bytes <= 0 || b.Bytes > most.Bytes+most.Bytes/8 ||
		!strings.HasPrefix(b.By, "80 % of ") {
		t.Errorf("%+v of %+v", b, most)
	}
}
