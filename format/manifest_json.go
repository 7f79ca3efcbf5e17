package format

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/internal/jsontext"
	"github.com/hopfeed/hopfeed/internal/kernel"
)

func hex32(crc uint32) string { return fmt.Sprintf("%08x", crc) }

// checkHex32 fails unless s is what hex32 gives for some checksum.
func checkHex32(s string) error {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || hex32(uint32(v)) != s {
		return fmt.Errorf("%q is not a checksum (8 digits of 0-9a-f)", s)
	}
	return nil
}

// manifestEnd is how every version of the format ends its manifest, whatever the digits. The checksum is checked
// before anything else is believed, so that damage is not mistaken for another version.
const manifestEnd = "\"crc32c\": \"00000000\"\n}\n"

// encodeJSON is v as JSON whose lines begin with indent.
func encodeJSON(indent string, v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent(indent, "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // strings, numbers, lists of them and JSON that was read cannot fail
	}
	return buf.Bytes()
}

// encodeSigned sets the checksum crc, which is a part of what encode returns, and returns that.
func encodeSigned(crc *string, encode func() []byte) []byte {
	*crc = hex32(0)
	*crc = hex32(kernel.CRC32C(0, encode()))
	return encode()
}

// encode is the manifest as JSON, with the CRC32C that it has. Readers accept any JSON of the same content that ends
// in the same way.
func (m *Manifest) encode() []byte {
	b := encodeJSON("", m)
	last := b[len(b)-len("  ")-len(manifestEnd):]
	out := b[: len(b)-len(last) : len(b)-len(last)]
	for _, name := range slices.Sorted(maps.Keys(m.unknown)) {
		field := encodeJSON("  ", map[string]json.RawMessage{name: m.unknown[name]})
		out = append(out, bytes.TrimSuffix(bytes.TrimPrefix(field, []byte("{\n  ")), []byte("\n  }\n"))...)
		out = append(out, ",\n"...)
	}
	return append(out, last...)
}

// encodeWithChecksum sets CRC32C, and returns the bytes of manifest.json.
func (m *Manifest) encodeWithChecksum() []byte {
	b := encodeSigned(&m.CRC32C, m.encode)
	m.bytes = int64(len(b))
	return b
}

// checkManifestSum fails unless a manifest ends with its checksum.
func checkManifestSum(b []byte) error {
	digits := len(b) - len("\"\n}\n") - 8
	if digits < 0 {
		return errors.New("it is too short for a manifest")
	}
	zeroed := slices.Concat(b[:digits], []byte("00000000"), b[digits+8:])
	if !bytes.HasSuffix(zeroed, []byte(manifestEnd)) {
		return errors.New("it does not end with its checksum (the field crc32c): perhaps it was cut short, or edited")
	}
	if want, found := hex32(kernel.CRC32C(0, zeroed)), string(b[digits:digits+8]); want != found {
		return fmt.Errorf("its bytes have checksum %s, want %s as its field crc32c says: perhaps it was edited", want,
			found)
	}
	if !utf8.Valid(b) {
		return errors.New("it is not valid UTF-8")
	}
	return nil
}

// decodeManifest is the inverse of encodeWithChecksum, and checks what it reads. The error is ErrVersion, or says
// what is wrong with the bytes.
func decodeManifest(b []byte) (*Manifest, error) {
	if err := checkManifestSum(b); err != nil {
		return nil, err
	}
	fields, err := members(b)
	if err != nil {
		return nil, err
	}
	m := &Manifest{bytes: int64(len(b))}
	version, found := fields["format"]
	if !found {
		return nil, errors.New("it has no \"format\"")
	}
	if err := jsontext.Decode(version, &m.Format); err != nil {
		return nil, fmt.Errorf("format: %w", err)
	}
	if m.Format != Version {
		return nil, errVersion(m.Format)
	}
	if list, found := fields["requires"]; found {
		if err := jsontext.Decode(list, &m.Requires); err != nil {
			return nil, fmt.Errorf("requires: %w", err)
		}
	}
	for _, feature := range m.Requires {
		if !slices.Contains(knownRequirements, feature) {
			return nil, fmt.Errorf("%w: made by a later version of hopfeed, it requires %q, which this one does not "+
				"know: use that version", ErrVersion, feature)
		}
	}
	if err := decodeFields(fields, reflect.ValueOf(m).Elem()); err != nil {
		return nil, err
	}
	m.unknown = fields
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

func errVersion(found int) error {
	if found < Version {
		return fmt.Errorf("%w: made by an earlier version of hopfeed (format %d; this one reads format %d): import "+
			"or propagate again with --force", ErrVersion, found, Version)
	}
	return fmt.Errorf("%w: made by a later version of hopfeed (format %d; this one reads format %d): use that version",
		ErrVersion, found, Version)
}

// decodeFields sets the fields of a struct from the members of a JSON object, by their exact names; fields without
// "omitempty" must be there. Members that the struct has no field for stay in members.
func decodeFields(members map[string]json.RawMessage, into reflect.Value) error {
	for i := range into.NumField() {
		name, option, tagged := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		value, found := members[name]
		if !found && tagged && option == "omitempty" {
			continue
		}
		if !found || string(value) == "null" {
			return fmt.Errorf("it has no %q", name)
		}
		delete(members, name)
		if err := decodeField(value, into.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func decodeField(b []byte, into reflect.Value) error {
	if into.Kind() != reflect.Slice || into.Type().Elem().Kind() != reflect.Struct {
		return jsontext.Decode(b, into.Addr().Interface())
	}
	var list []json.RawMessage
	if err := jsontext.Decode(b, &list); err != nil {
		return err
	}
	into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	for i := range list {
		fields, err := members(list[i])
		if err == nil {
			err = decodeFields(fields, into.Index(i))
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// members are the fields of a JSON object by name, which are all different.
func members(b []byte) (_ map[string]json.RawMessage, err error) {
	defer func() {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) { // a decoder's offset is no place in b
			err = cmp.Or(json.Unmarshal(b, new(json.RawMessage)), err)
		}
		err = jsontext.Explain(b, err)
	}()
	// What is wrong is found token by token, which takes several times as long.
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) == nil && all != nil && len(all) == countMembers(b) {
		return all, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if start, err := d.Token(); err != nil {
		return nil, err
	} else if start != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	out := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := name.(string)
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("it has %q twice", key)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		out[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more after the JSON object")
	}
	return out, nil
}

// countMembers counts the members of a valid JSON object, also those of one name: its colons outside of strings and of
// inner values.
func countMembers(b []byte) (n int) {
	inString, depth := false, 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++ // of an escaped character
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':' && depth == 1:
			n++
		}
	}
	return n
}

// RowsFingerprint identifies the rows of a store, their order and their input. It stays the same as matrices are
// added: a store is a function of the graph, of the values here, and of its operators. For a graph, and for a store
// of chosen nodes, which cannot grow, it is Fingerprint.
func (m *Manifest) RowsFingerprint() string {
	graph := m.Input["graph"]
	if m.Kind != KindStore || m.RowSet == RowsChosen || graph == "" {
		return m.Fingerprint
	}
	text := fmt.Sprintln("rows", Version, graph, m.DType, m.ChunkRows, m.Rows, m.Split, m.RowSet, m.Seed)
	if m.LabelHops > 0 {
		text += fmt.Sprintln("label_hops", m.LabelHops)
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

// fingerprint is the value of the field Fingerprint: the SHA-256 of a text of one line for each thing that the
// content is a function of, followed by the rows of the index. What is not in the text (tool, name, input, where
// features were left, and fields that are unknown) does not change what data mean.
func (m *Manifest) fingerprint(index []indexRow) string {
	h := sha256.New()
	line := func(name string, values ...any) { fmt.Fprintln(h, append([]any{name}, values...)...) }
	line("format", m.Format)
	line("kind", m.Kind)
	for _, feature := range m.Requires {
		line("requires", feature)
	}
	line("nodes", m.Nodes)
	line("edges", m.Edges)
	line("directed", m.Directed)
	line("weighted", m.Weighted)
	if m.SourceNodes > 0 {
		line("source_nodes", m.SourceNodes)
	}
	line("features", m.Features)
	line("dtype", m.DType)
	line("classes", m.Classes)
	line("label_columns", m.Labels)
	line("label_values", m.LabelValues)
	line("splits", m.Splits)
	line("orig_ids", m.OrigIDs)
	line("rows", m.Rows)
	line("chunk_rows", m.ChunkRows)
	for _, name := range m.ClassNames {
		line("class_name", len(name), name) // which may have spaces and line feeds
	}
	for _, c := range m.Columns {
		line("column", c.Of, c.Name, c.DType, c.Columns, c.ChunkRows)
	}
	for _, r := range m.Regions {
		line("region", r.Name, r.FirstRow, r.Rows, r.FirstChunk, r.Chunks)
	}
	for _, o := range m.Operators {
		if o.Features != 0 {
			line("operator", o.Name, o.Hops, o.Features)
		} else {
			line("operator", o.Name, o.Hops)
		}
	}
	if m.Kind == KindStore {
		line("split", m.Split)
		line("row_set", m.RowSet)
		line("seed", m.Seed)
	}
	if m.LabelHops > 0 {
		line("label_hops", m.LabelHops)
	}
	for _, f := range m.Files {
		line("file", f.Path, f.Size, f.CRC32C, f.Offset)
	}
	var b []byte
	for _, r := range index {
		b = binary.LittleEndian.AppendUint32(b[:0], r.file)
		b = binary.LittleEndian.AppendUint32(b, r.CRC32C)
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Length))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
