package command

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/tools/npy"
)

// A loss that is no number names the nodes of the batch, wherever their rows come from and however many devices
// share them: the node whose features are too large, and as many others as a batch has.
func TestADivergedTrainingNamesTheNodesOfItsBatch(t *testing.T) {
	const nodes, columns, batch = 300, 6, 16
	named := regexp.MustCompile(`batch (\d+).*; the batch is of the nodes \[([\d ]*)\]`)
	d := disk(t, generateLine, exportLine)
	arrays := tree(t, d, "arrays")
	splits := arrays["arrays/splits.npy"]
	var training []uint32 // nodes
	for node, part := range []byte(splits[len(splits)-nodes:]) {
		if part == 0 {
			training = append(training, uint32(node))
		}
	}
	for _, bad := range training[10:20] {
		features := npy.AppendHeader(nil, npy.Float32, 2, nodes, columns)
		for node := range uint32(nodes) {
			for j := range uint32(columns) {
				x := 1e-3 * float32(1+(node*7+j*3)%11)
				if node == bad {
					x = math.MaxFloat32
				}
				features = binary.LittleEndian.AppendUint32(features, math.Float32bits(x))
			}
		}
		write(t, d, "arrays/node_feat.npy", string(features))
		must(t, d, "import npy arrays -o graph --force")
		must(t, d, "propagate graph -o store --hops 1 --chunk-rows 16 --force")
		batches := map[string]map[string]bool{} // of each order, what is named
		for _, place := range []string{
			"--shuffle rr", "--shuffle rr --emulate gpu=2,mem=1MiB",
			"--shuffle rr --emulate gpu=3,mem=1MiB --placement host",
			"--shuffle chunk", "--shuffle chunk --placement host", "--shuffle chunk --placement storage",
			"--shuffle chunk --placement storage --emulate gpu=2,mem=1MiB",
		} {
			o := hopfeed(t, d, fmt.Sprintf("train store --model sgc --hops 0 --epochs 1 --batch %d %s", batch, place))
			found := named.FindStringSubmatch(o.stderr)
			if o.code != exitFailed || found == nil {
				t.Fatalf("node %d, %s: exit status %d: %s", bad, place, o.code, o.stderr)
			}
			var list []uint32
			for _, text := range strings.Fields(found[2]) {
				node, err := strconv.ParseUint(text, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, uint32(node))
			}
			if len(list) != batch || len(slices.Compact(list)) != batch || !slices.Contains(list, bad) {
				t.Errorf("node %d, %s: batch %s is of the nodes %v", bad, place, found[1], list)
			}
			order := strings.Fields(place)[1]
			if batches[order] == nil {
				batches[order] = map[string]bool{}
			}
			batches[order][found[1]+": "+found[2]] = true
		}
		for order, found := range batches {
			if len(found) != 1 {
				t.Errorf("node %d, %s: the same order gives %v", bad, order, found)
			}
		}
	}
}
