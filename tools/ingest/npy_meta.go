package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/format"
)

// npyMeta is what is read of meta.json.
type npyMeta struct {
	Name           string   `json:"name"`
	Nodes          *int64   `json:"num_nodes"`
	Features       *int64   `json:"num_features"`
	Directed       *bool    `json:"directed"`
	ReversesStored bool     `json:"reverses_stored"`
	FeatureDType   string   `json:"feature_dtype"`
	EdgeLayout     string   `json:"edge_layout"`
	LabelsAs       LabelsAs `json:"labels_as"`
	ClassNames     []string `json:"class_names"`
	Normalized     bool     `json:"normalize_features"` // they were, before they were exported
}

const maxMeta = 16 << 20 // bytes of meta.json

func (s *arraySource) readMeta() (meta npyMeta, err error) {
	if !s.names["meta.json"] {
		return meta, nil
	}
	path := s.path("meta.json")
	f, err := s.fsys.Open(path)
	if err != nil {
		return meta, err
	}
	defer f.Close()
	size, err := f.Size()
	if err == nil && size > maxMeta {
		err = invalid(path, "more than %d bytes long", maxMeta)
	}
	if err != nil {
		return meta, err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		return meta, err
	}
	if err := meta.parse(text); err != nil {
		return meta, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	if meta.Name != "" {
		s.info.Name = meta.Name
	}
	if meta.Normalized {
		s.info.Input[format.NormalizeFeatures] = "true"
	}
	switch {
	case meta.ReversesStored:
		s.info.Direction = Symmetric
	case meta.Directed == nil:
		return meta, nil
	case *meta.Directed:
		s.info.Direction = Directed
	default:
		s.info.Direction = Undirected
	}
	s.info.DirectionFrom = path
	return meta, nil
}

// parse reads JSON. The errors do not name the file.
func (m *npyMeta) parse(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	place := func(offset int64) string {
		before := text[:offset]
		return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")),
			int(offset)-1-bytes.LastIndexByte(before, '\n'))
	}
	err := json.Unmarshal(text, m)
	var syntax *json.SyntaxError
	var value *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: this is not JSON", place(syntax.Offset))
	case errors.As(err, &value) && value.Field == "":
		return fmt.Errorf("found %s (want an object)", value.Value)
	case errors.As(err, &value):
		want := map[reflect.Kind]string{reflect.Int64: "a whole number", reflect.Bool: "true or false",
			reflect.String: "a string"}[value.Type.Kind()]
		return fmt.Errorf("%s: %s: found %s (want %s)", place(value.Offset), value.Field, value.Value, want)
	case err != nil:
		return err
	case !printable(m.Name):
		return fmt.Errorf("name %q has a character that cannot be printed", m.Name)
	case m.EdgeLayout != "" && m.EdgeLayout != "2xE" && m.EdgeLayout != "Ex2":
		return fmt.Errorf("edge_layout is %.100q (want 2xE or Ex2)", m.EdgeLayout)
	case m.LabelsAs.check() != nil:
		return fmt.Errorf("labels_as is %.100q (want classes, multi or values)", string(m.LabelsAs))
	case len(m.ClassNames) > format.MaxClassNames:
		return fmt.Errorf("class_names has more than %d names", format.MaxClassNames)
	case m.ReversesStored && m.Directed != nil && *m.Directed:
		return errors.New("reverses_stored is true, and so is directed (want directed: false)")
	}
	seen := map[string]bool{}
	for _, name := range m.ClassNames {
		if err := format.CheckClassName(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("class_names has %q twice", name)
		}
		seen[name] = true
	}
	return nil
}

// checkMeta compares meta.json with the arrays.
func (s *arraySource) checkMeta(meta npyMeta) error {
	if meta.Nodes != nil && *meta.Nodes != s.info.Nodes {
		return invalid(s.path("meta.json"), "num_nodes is %d, but the features have %d rows", *meta.Nodes, s.info.Nodes)
	}
	if meta.Features != nil && *meta.Features != int64(s.info.Features) {
		return invalid(s.path("meta.json"), "num_features is %d, but the features have %d columns",
			*meta.Features, s.info.Features)
	}
	return nil
}
