package tune

import (
	"errors"
	"strconv"
	"time"
)

// Budget is a time of all trials together, or their number. It is the value of a flag.
type Budget struct {
	Seconds float64
	Trials  int
}

// Set reads a whole number of trials, or a duration.
func (b *Budget) Set(text string) error {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return errors.New("want at least one trial")
		}
		*b = Budget{Trials: n}
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("want a time above zero, such as 10m, or a number of trials, such as 40")
	}
	*b = Budget{Seconds: d.Seconds()}
	return nil
}

func (b *Budget) String() string {
	if b.Trials > 0 {
		return strconv.Itoa(b.Trials)
	}
	return time.Duration(b.Seconds * float64(time.Second)).String()
}

// Type is what help calls the value.
func (b *Budget) Type() string { return "time or number" }

// Within proposes what another does as long as the trials so far have not used up the budget.
func (b *Budget) Within(propose Proposer) Proposer {
	if b.Trials > 0 {
		return First(b.Trials, propose)
	}
	return func(done []Trial) Settings {
		used := 0.0
		for _, t := range done {
			used += t.Seconds
		}
		if used >= b.Seconds {
			return nil
		}
		return propose(done)
	}
}
