package npy

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Archive is an .npz file: a zip of .npy members, stored or deflated.
type Archive struct {
	zip  *zip.Reader
	file vfs.File
}

// OpenArchive opens an .npz file.
func OpenArchive(fsys vfs.FS, path string) (*Archive, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, err
	}
	// A section reader returns EOF for offsets beyond the file, which a damaged directory may have.
	z, err := zip.NewReader(io.NewSectionReader(f, 0, size), size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // members are never unpacked to their names
		f.Close()
		return nil, archiveError(path, err)
	}
	z.RegisterDecompressor(zip.Deflate, flate.NewReader)
	return &Archive{z, f}, nil
}

// archiveError makes an error of reading an archive ErrInvalid if the archive is damaged; an error of the file system
// stays what it is.
func archiveError(path string, err error) error {
	for _, damage := range []error{zip.ErrFormat, zip.ErrAlgorithm, zip.ErrChecksum, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, damage) {
			return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
		}
	}
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Close closes the file.
func (z *Archive) Close() error { return z.file.Close() }

// Has reports whether the archive has an array of that name.
func (z *Archive) Has(name string) bool { return z.find(name) != nil }

// Names lists the names of the arrays, sorted.
func (z *Archive) Names() []string {
	var names []string
	for _, f := range z.zip.File {
		if name, ok := strings.CutSuffix(f.Name, ".npy"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// find returns the last member of a name, which is the one that NumPy reads, or nil.
func (z *Archive) find(name string) *zip.File {
	for _, f := range slices.Backward(z.zip.File) {
		if f.Name == name+".npy" {
			return f
		}
	}
	return nil
}

// Stream is an array that is read once, from its first element to its last. The checksum of the archive is checked with
// the last.
type Stream struct {
	Header
	path   string // archive and member
	member io.ReadCloser
	r      *bufio.Reader
	left   int64 // elements that were not read yet
	raw    []byte
}

// Stream starts to read an array of the archive.
func (z *Archive) Stream(name string) (*Stream, error) {
	path := z.file.Path() + ": " + name
	f := z.find(name)
	if f == nil {
		return nil, fmt.Errorf("%w: %s: the archive has no such array", ErrInvalid, path)
	}
	member, err := f.Open()
	if err != nil {
		return nil, archiveError(path, err)
	}
	s := &Stream{path: path, member: member, r: bufio.NewReaderSize(member, 1<<16)}
	h, err := ReadHeader(s.r)
	if err == nil {
		if want := uint64(h.Offset) + uint64(h.DataBytes()); f.UncompressedSize64 != want {
			err = fmt.Errorf("%w: %s array of shape %v needs %d bytes, the member has %d", ErrInvalid, h.Type, h.Shape,
				want, f.UncompressedSize64)
		}
	}
	if err != nil {
		member.Close()
		if errors.Is(err, ErrInvalid) {
			return nil, named(path, err)
		}
		return nil, archiveError(path, err)
	}
	s.Header, s.left = *h, h.Elements()
	return s, nil
}

// Path names the archive and the array.
func (s *Stream) Path() string { return s.path }

// Close ends the stream.
func (s *Stream) Close() error { return s.member.Close() }

// Next reads the next len(dst) elements into dst.
func Next[T Number](s *Stream, dst []T) error {
	if err := s.checkNumbers(s.path); err != nil {
		return err
	}
	size := s.ItemBytes()
	for len(dst) > 0 {
		n := min(len(dst), blockBytes/int(size))
		raw, err := s.next(int64(n))
		if err != nil {
			return err
		}
		Convert(dst[:n], raw, &s.Header)
		dst = dst[n:]
	}
	return nil
}

// next reads the bytes of n elements. After the last element it reads to the end of the member, since only there the
// zip reader compares the checksum.
func (s *Stream) next(n int64) ([]byte, error) {
	if n > s.left {
		return nil, fmt.Errorf("%w: %s: ends %d elements early", ErrInvalid, s.path, n-s.left)
	}
	bytes := n * s.ItemBytes()
	if int64(cap(s.raw)) < bytes {
		s.raw = make([]byte, bytes)
	}
	raw := s.raw[:bytes]
	if _, err := io.ReadFull(s.r, raw); err != nil {
		return nil, archiveError(s.path, err)
	}
	if s.left -= n; s.left == 0 {
		if _, err := s.r.ReadByte(); err != io.EOF {
			if err == nil {
				err = zip.ErrFormat
			}
			return nil, archiveError(s.path, err)
		}
	}
	return raw, nil
}

// maxString is the greatest number of characters of a string that Text reads.
const maxString = 1 << 10

// Text reads a stream that is one string.
func (s *Stream) Text() (string, error) {
	if s.Type != Bytes && s.Type != Text || s.Elements() != 1 || s.Width > maxString {
		return "", fmt.Errorf("%w: %s: %s of shape %v where a string is expected", ErrInvalid, s.path, s.Type, s.Shape)
	}
	raw, err := s.next(1)
	if err != nil {
		return "", err
	}
	text, ok := appendString(nil, raw, &s.Header)
	if !ok {
		return "", fmt.Errorf("%w: %s: not a string", ErrInvalid, s.path)
	}
	return string(text), nil
}
