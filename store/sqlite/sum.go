package sqlite

import (
	"encoding/binary"
	"hash/crc32"
)

// spanSum is the checksum of a batch that stands for further offsets.
func spanSum(instance, offset, epoch, span int64, payload []byte) int64 {
	if span == 0 {
		return batchSum(instance, offset, epoch, payload)
	}
	var end [8]byte
	binary.LittleEndian.PutUint64(end[:], uint64(span))
	sum := uint32(batchSum(instance, offset, epoch, payload))
	return int64(crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), end[:]))
}

// batchSum is the checksum that is stored with a batch. SQLite guards its
// write-ahead log with checksums, but not the pages of the file. The sum
// covers where the batch belongs, so that a row under another key fails too.
func batchSum(instance, offset, epoch int64, payload []byte) int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var key [24]byte
	binary.LittleEndian.PutUint64(key[0:], uint64(instance))
	binary.LittleEndian.PutUint64(key[8:], uint64(offset))
	binary.LittleEndian.PutUint64(key[16:], uint64(epoch))
	return int64(crc32.Update(crc32.Checksum(key[:], table), table, payload))
}
