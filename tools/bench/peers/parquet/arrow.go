package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// arrowBatch is how many values of a column are read at a time.
const arrowBatch = 1 << 12

// eachArrowBatch calls body with the values of every column that Arrow's reader reads.
func eachArrowBatch(data []byte, body func(values any) error) error {
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer r.Close()
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		for c := range group.NumColumns() {
			column, err := group.Column(c)
			if err == nil {
				err = readArrowColumn(column, body)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func readArrowColumn(column file.ColumnChunkReader, body func(values any) error) error {
	switch r := column.(type) {
	case *file.BooleanColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.Int32ColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.Int64ColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.Float32ColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.Float64ColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.ByteArrayColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.FixedLenByteArrayColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	case *file.Int96ColumnChunkReader:
		return arrowBatches(r.ReadBatch, column.Err, body)
	}
	return fmt.Errorf("column of %T", column)
}

func arrowBatches[T any](read func(int64, []T, []int16, []int16) (int64, int, error), failed func() error,
	body func(any) error) error {
	values, def, rep := make([]T, arrowBatch), make([]int16, arrowBatch), make([]int16, arrowBatch)
	for {
		total, n, err := read(arrowBatch, values, def, rep)
		if err == nil {
			err = failed()
		}
		if err == nil {
			err = body(values[:n])
		}
		if err != nil || total == 0 {
			return err
		}
	}
}

func arrowDigest(data []byte) (uint64, error) {
	h := fnv.New64a()
	err := eachArrowBatch(data, func(values any) error {
		switch values := values.(type) {
		case []parquet.ByteArray:
			for _, v := range values {
				h.Write(v)
			}
		case []parquet.FixedLenByteArray:
			for _, v := range values {
				h.Write(v)
			}
		default:
			return binary.Write(h, binary.LittleEndian, values)
		}
		return nil
	})
	return h.Sum64(), err
}

func arrowSum(data []byte) (func() (float64, error), error) {
	return func() (sum float64, err error) {
		err = eachArrowBatch(data, func(values any) error {
			switch values := values.(type) {
			case []float32:
				sum += total(values, nil)
			case []float64:
				sum += total(values, nil)
			case []int32:
				sum += total(values, nil)
			case []int64:
				sum += total(values, nil)
			}
			return nil
		})
		return sum, err
	}, nil
}
