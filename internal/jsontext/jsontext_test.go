package jsontext

import (
	"io/fs"
	"strings"
	"testing"
)

func TestErrorsSayWhatIsWrongAndWhere(t *testing.T) {
	type value struct {
		Count int64              `json:"count"`
		Names []string           `json:"names"`
		Rates map[string]float32 `json:"rates"`
		Size  *uint8             `json:"size"`
	}
	for text, want := range map[string]string{
		`{"count": 1, "names": ["a"], "rates": {"b": 0.5}, "size": 3, "later": null}`: "",
		``:                   "line 1, column 0: this is not JSON",
		`{"count": 1`:        "line 1, column 11: this is not JSON",
		"{\n  \"count\": x}": "line 2, column 12: this is not JSON",
		"{}\n{}":             "line 2, column 1: this is not JSON",
		`{"count": ` + strings.Repeat("9", 99) + `}`: "line 1, column 109: count: found number " +
			strings.Repeat("9", 33) + " (want a whole number)",
		`[1]`:                      "found array (want an object)",
		`{"count": "1"}`:           "line 1, column 13: count: found string (want a whole number)",
		`{"count": 1.5}`:           "line 1, column 13: count: found number 1.5 (want a whole number)",
		"{\n\"names\": {}}":        "line 2, column 10: names: found object (want a list)",
		`{"names": [1]}`:           "line 1, column 12: names: found number (want a string)",
		`{"rates": {"b": "c"}}`:    "line 1, column 19: rates: found string (want a number)",
		`{"size": 256}`:            "line 1, column 12: size: found number 256 (want a whole number)",
		`{"size": -1, "names": 1}`: "line 1, column 11: size: found number -1 (want a whole number)",
	} {
		found := ""
		if err := Decode([]byte(text), new(value)); err != nil {
			found = err.Error()
		}
		if found != want {
			t.Errorf("%s: got %q, want %q", text, found, want)
		}
	}
	if err := Explain(nil, fs.ErrNotExist); err != fs.ErrNotExist {
		t.Errorf("another error became %v", err)
	}
}
