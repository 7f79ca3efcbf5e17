package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/trainer"
)

// maxSplits is the most splits that one training takes in turn.
const maxSplits = 1000

// splitNumbers is the flag --split: numbers of splits and ranges of them, such as 0-9 or 0,2,5-7.
type splitNumbers []int

// Set reads the numbers. Whether there are such splits depends on the store.
func (s *splitNumbers) Set(text string) error {
	numbers := splitNumbers{}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		to, toErr := strconv.ParseUint(last, 10, 31)
		if err != nil || toErr != nil || to < from || int(to-from) >= maxSplits-len(numbers) {
			return fmt.Errorf("want numbers of splits, such as 0, 0,2 or 0-9 (at most %d of them)", maxSplits)
		}
		for k := from; k <= to; k++ {
			numbers = append(numbers, int(k))
		}
	}
	*s = numbers
	return nil
}

// String is empty if no split was given.
func (s *splitNumbers) String() string {
	var parts []string
	for i := 0; i < len(*s); {
		last := i
		for last+1 < len(*s) && (*s)[last+1] == (*s)[last]+1 {
			last++
		}
		if text := strconv.Itoa((*s)[i]); last == i {
			parts = append(parts, text)
		} else {
			parts = append(parts, text+"-"+strconv.Itoa((*s)[last]))
		}
		i = last + 1
	}
	return strings.Join(parts, ",")
}

// Type is the name of the value in help.
func (s *splitNumbers) Type() string { return "numbers" }

// trainSplits makes the runs of a training on each of its splits, one after another. Figures are means over all
// runs; all else is of the last split. As with train, a result may come with an error.
func (a *app) trainSplits(ctx context.Context, o *trainOptions) (*trained, error) {
	if len(o.splitNumbers) <= 1 {
		return a.train(ctx, o)
	}
	given, values := o.Settings, maps.Clone(o.Values) // some follow from the rows of a split
	var all *trained
	var errs []error
	for _, o.Split = range o.splitNumbers {
		o.Settings = given
		clear(o.Values) // which the flags are the values of
		maps.Copy(o.Values, values)
		a.note("split %d:", o.Split)
		r, err := a.train(ctx, o)
		if err != nil && !errors.Is(err, trainer.ErrDiverged) {
			return nil, err
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("split %d: %w", o.Split, err))
		}
		if r == nil {
			continue
		}
		if all != nil {
			r.Runs = append(all.Runs, r.Runs...)
			r.Splits = all.Splits
			r.Seconds += all.Seconds
		}
		r.Splits = append(r.Splits, o.Split)
		all = r
	}
	if all != nil {
		all.Summary = *checkpoint.Summarize(checkpoint.Finished(all.Runs))
	}
	return all, errors.Join(errs...)
}
