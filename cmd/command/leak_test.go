package command

import (
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/offheap"
	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/training"
	"github.com/hopfeed/hopfeed/trainer"
)

// No command leaves memory off the heap behind, whatever its options; a program opens many sessions one after another,
// as a search does.
func TestCommandsFreeWhatTheyAllocate(t *testing.T) {
	d := disk(t, generateLine, propagateLine, trainLine,
		"train graph --model sage --hidden 8 --batch 64 --epochs 1 --run graph-run")
	const emulated = " --emulate gpu=1,mem=1GiB"
	train := "train graph --model sage --hidden 8 --batch 64 --epochs 1 --fanout 3,2"
	lines := []string{
		"evaluate graph --checkpoint graph-run --placement storage",
		"predict graph --checkpoint graph-run -o p.csv --placement host" + emulated,
		"predict store --checkpoint run -o q.csv",
		"bench schedule graph --model sage --hidden 8 --batch 64 --fanout 3,2" + emulated,
		"train graph --model gcn --sampler full --epochs 1", "train store --model hoga --epochs 1 --placement storage",
		"bench load store --rounds 1",
	}
	for _, policy := range cache.Policies() {
		lines = append(lines, train+" --cache "+policy+":3000B",
			train+" --placement storage --cache "+policy+":3000B"+emulated,
			"sample graph --fanout 3,2 --batch 64 --cache "+policy+":3000B")
	}
	for _, name := range append(scheduler.Names(), scheduler.MultiQueue) {
		lines = append(lines, train+" --cache ducati:3000B --schedule "+name,
			train+" --schedule "+name+" --cache ducati:3000B"+emulated)
	}
	for _, name := range sampling.Names() {
		line := strings.Replace(train, " --fanout 3,2", "", 1) + " --sampler " + name
		if sampling.Apart(name) {
			line = strings.Replace(line, "--model sage", "--model gcn", 1)
		}
		if name == training.LocalitySampler {
			line += " --bias 2 --cache ducati:3000B"
		}
		lines = append(lines, line)
	}
	names, _ := trainer.Models()
	for _, name := range names {
		if aggregation, err := trainer.AggregationOf(name); err != nil {
			t.Fatal(err)
		} else if aggregation == "" {
			lines = append(lines, "train store --epochs 1 --model "+name,
				"train store --epochs 1 --emulate gpu=2,mem=1GiB --model "+name)
		} else {
			lines = append(lines, "train graph --epochs 1 --batch 64 --placement host --model "+name)
		}
	}
	for _, line := range lines {
		before := offheap.InUse()
		o := hopfeed(t, d, line)
		if left := offheap.InUse() - before; left != 0 {
			t.Errorf("hopfeed %s: %d bytes are left", line, left)
		}
		// which the host cannot
		if o.code != exitDone && !(o.code == exitUsage && strings.Contains(line, "--schedule")) {
			t.Errorf("hopfeed %s: exit status %d: %s", line, o.code, o.stderr)
		}
	}
}
