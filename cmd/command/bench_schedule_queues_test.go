package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/tools/bench"
)

func TestBenchScheduleComparesQueuesOnEachNumberOfDevices(t *testing.T) {
	const line = "bench schedule graph --hidden 8 --batch 16 --fanout 3,3 --rounds 2 --emulate " +
		"gpu=2,mem=1GiB,workers=2,cpu=2ms,dma=1ms,compute=3ms,straggle=2 "
	d := disk(t, generateLine)
	o := must(t, d, line+"--json")
	var rows []bench.QueueResult
	decoder := json.NewDecoder(strings.NewReader(o.stdout))
	for decoder.More() {
		var r bench.QueueResult
		if err := decoder.Decode(&r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) != 4 {
		t.Fatalf("%s", o.stdout)
	}
	for i, r := range rows {
		name := []string{bench.Synchronous, "multi-queue"}[i%2]
		if r.Schedule != name || r.Devices != 1+i/2 || len(r.EpochsSeconds) != 2 || r.EpochSeconds <= 0 ||
			r.PredictedSeconds <= 0 || r.RowsPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		if (r.Lag() == 0) != (r.Staleness.Largest == 0) || name == bench.Synchronous &&
			(r.Lag() != 0 || r.TimesSynchronous != 1) {
			t.Errorf("%+v", r)
		}
	}
	if o := must(t, d, line); !strings.Contains(o.stdout, "times synchronous") ||
		strings.Count(o.stdout, "multi-queue") != 2 {
		t.Errorf("%s", o.stdout)
	}
	both := must(t, d, "bench schedule graph --hidden 8 --batch 16 --fanout 3,3 --rounds 1 --emulate gpu=1,mem=1GiB "+
		"--schedules cpu,multi-queue")
	for _, says := range []string{"cpu ", "synchronous", "multi-queue"} {
		if !strings.Contains(both.stdout, says) {
			t.Errorf("no %q in %s", says, both.stdout)
		}
	}
	for flags, says := range map[string]string{"--schedules multi-queue -o charts": "not by the schedule " +
		"multi-queue alone", "--schedules queue": `no schedule "queue"`} {
		if o := hopfeed(t, d, line+flags); o.code != exitUsage || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: %d, %s", flags, o.code, o.stderr)
		}
	}
}
