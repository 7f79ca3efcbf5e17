package trainer

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/progress"
)

// slowly are rows whose batches of 10 take so long each, in a synctest bubble.
func slowly(rows *toy, dev gds.Device, each time.Duration) *toy {
	fed := rows.feed(dev, 10)
	fed.hook = func(int, int) error { time.Sleep(each); return nil }
	return fed
}

// shown notes what is shown.
type shown struct {
	started []string
	of      int64
	added   []int64
	done    int
}

func (s *shown) Start(label string, total int64, _ progress.Unit) progress.Task {
	s.started, s.of = append(s.started, label), total
	return s
}

func (s *shown) Add(n int64) { s.added = append(s.added, n) }
func (s *shown) Done()       { s.done++ }

func TestAnEvaluationThatTakesLongShowsItsRows(t *testing.T) {
	c, valid := trainedToy(t)
	for each, want := range map[time.Duration][]int64{
		10 * time.Millisecond: nil, 900 * time.Millisecond: {30, 10, 10, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s shown
			dev := openDevice(t, host.Options{})
			_, err := Evaluate(t.Context(), []gds.Device{dev}, &c.Trained, 20, []NamedRows{{"valid",
				[]Epocher{slowly(valid, dev, each)}}}, &s)
			if err != nil || !slices.Equal(s.added, want) {
				t.Fatalf("%v a batch: %+v, %v", each, s, err)
			}
			if want != nil && (!slices.Equal(s.started, []string{"evaluation of valid rows"}) || s.of != 60 ||
				s.done != 1) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A validation of 10 batches that takes 65 s is measured for 30 s.
func TestAValidationThatTakesLongIsEstimatedByAPart(t *testing.T) {
	for each, want := range map[time.Duration]float64{
		time.Second / 2: 5, 13 * time.Second / 2: 65, time.Hour: math.Inf(1),
	} {
		synctest.Test(t, func(t *testing.T) {
			dev := openDevice(t, host.Options{})
			train, valid := clusters(1, 60, 3, 4, 3, 0.1), clusters(2, 100, 3, 4, 3, 0.1)
			costs, err := MeasureEpoch(t.Context(), []Rank{{dev, Data{Train: slowly(train, dev, time.Second),
				Valid: slowly(valid, dev, each), BatchRows: 20}}}, toySIGN(3))
			if err != nil {
				t.Fatal(err)
			}
			ratio := costs.ValidSeconds / want
			whole := costs.ValidPart == 1
			if whole != (want < 30) || costs.ValidSeconds != want && (ratio < 0.7 || ratio > 1.4) {
				t.Errorf("%v a batch: %v s by %v of the rows, want %v", each, costs.ValidSeconds, costs.ValidPart, want)
			}
		})
	}
}
