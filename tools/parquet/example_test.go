package parquet_test

import (
	"fmt"
	"io"
	"log"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/tools/parquet"
)

// Lists the columns of a table, and adds up one of them.
func Example() {
	table, err := parquet.Open(vfs.OS(), "testdata/snappy_v2.parquet", 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	for _, column := range table.Columns {
		fmt.Println(column.Name+":", column.Type)
	}
	reader, err := table.Read(&table.Columns[2])
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	sum, nulls := int64(0), 0
	for {
		cells, err := reader.Next(1000)
		if err == io.EOF {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		for i := range cells.N {
			if cells.Null[i] {
				nulls++
			} else {
				sum += cells.Ints[i]
			}
		}
	}
	fmt.Printf("%d rows, %d nulls, sum %d\n", table.Rows, nulls, sum)
	// Output:
	// i64: int64
	// text: text
	// nulls: int64
	// list: list of float32
	// 24 rows, 6 nulls, sum 3318
}
