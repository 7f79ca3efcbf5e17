package preprop

import (
	"math"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// secondsAttribute is the attribute of a store's directory that says how long propagation took: a number of seconds, and
// moreTime where that is not all. It is no part of the store, whose bytes do not depend on time.
const (
	secondsAttribute = "propagation-seconds"
	moreTime         = "+"
)

// Took is how long the propagation of a store took.
type Took struct {
	Seconds float64 // 0: unknown
	AtLeast bool    // it took longer: a run that ended early, or another shard, is not counted
}

// TookOf reads how long the propagation of a store took. It is unknown where the file system keeps no attributes, and of
// copies that were made without them.
func TookOf(fsys vfs.FS, storeDir string) (t Took) {
	text, err := fsys.Attribute(storeDir, secondsAttribute)
	if err != nil {
		return t
	}
	number, more := strings.CutSuffix(text, moreTime)
	if seconds, err := strconv.ParseFloat(number, 64); err == nil && seconds > 0 && seconds <= math.MaxFloat64 {
		t = Took{seconds, more}
	}
	return t
}

// recordTook records the time of a job that has published its store, or added to it. Where it cannot, nothing is lost but
// the figure.
func (s *jobContext) recordTook(r *Result) {
	t := Took{r.Seconds, r.Resumed || s.options.Shard.Count > 1}
	if s.existing != nil {
		before := TookOf(s.fsys, s.storeDir)
		t.Seconds, t.AtLeast = t.Seconds+before.Seconds, t.AtLeast || before.AtLeast || before.Seconds == 0
	}
	text := strconv.FormatFloat(t.Seconds, 'g', 6, 64)
	if t.AtLeast {
		text += moreTime
	}
	_ = s.fsys.SetAttribute(s.storeDir, secondsAttribute, text)
}
