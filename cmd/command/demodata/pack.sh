#!/bin/sh
# Makes the archives of package demodata: pack.sh DATA GRAPH... packs the files of each folder DATA/GRAPH that the npy
# importer reads into GRAPH.tar.zst. Needs GNU tar and zstd.
set -eu
data=$1
shift
for graph; do
  out=$PWD/$graph.tar
  (cd "$data/$graph" && tar --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -cf "$out" \
    meta.json edge_index.npy node_feat.np[yz] node_label.npy splits*.npy)
  zstd -19 --ultra -q -f --rm "$out"
done
