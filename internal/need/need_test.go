package need

import "testing"

func TestPeaksAreOfAPhase(t *testing.T) {
	terms := Terms{
		{Name: "topology", Place: OffHeap, Bytes: 100},
		{Name: "features", Place: Pinned, Bytes: 50, From: Features, Until: Features},
		{Name: "edges", Place: Heap, Bytes: 30, From: Edges, Until: Edges},
		{Name: "graph", Place: Device, Bytes: 20, From: Features},
		{Name: "model", Place: Device, Bytes: 5, From: Epoch},
		{Name: "evaluation", Place: FirstDevice, Bytes: 2, From: Epoch},
		{Name: "checkpoint", Place: Heap, Bytes: 25, From: Saving},
		{Name: "program", Place: Heap, Bytes: 7},
	}
	for _, c := range []struct {
		places []Place
		want   int64
	}{
		{[]Place{OffHeap}, 100}, {[]Place{OffHeap, Pinned}, 150}, {[]Place{Heap}, 37}, {[]Place{Device}, 25},
		{[]Place{Pinned, Device}, 70}, {nil, 0},
	} {
		if got := terms.Peak(c.places...); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.places, got, c.want)
		}
	}
	for unified, want := range map[bool]int64{false: 150 + 37, true: 170 - 27 + 37} {
		m := terms.Sum(2, unified)
		if m.HostBytes != want || m.HeapBytes != 37 || m.DeviceBytes != 27 || m.OtherBytes != 25 {
			t.Errorf("unified %v: %+v, want %d bytes of the host", unified, m, want)
		}
	}
	m := terms.During(Epoch, "")
	for _, n := range terms {
		m.Set(n.Name, n.Place, 3*n.Bytes)
	}
	if m.Peak(OffHeap) != 300 || terms.Peak(OffHeap) != 100 {
		t.Errorf("%+v", m)
	}
}
