package postgres

import (
	"encoding/binary"
	"hash/crc32"
)

// contentSum is the part of a batch's checksum that a client can make before it
// knows where the batch will be: the CRC-32C of its epoch, its span and its
// payload.
func contentSum(epoch, span int64, payload []byte) int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var key [16]byte
	binary.LittleEndian.PutUint64(key[0:], uint64(epoch))
	binary.LittleEndian.PutUint64(key[8:], uint64(span))
	return int64(crc32.Update(crc32.Checksum(key[:], table), table, payload))
}

// sumSQL is how a statement makes a checksum of the content's and of where the
// batch is: the place is in the upper half.
func sumSQL(content, instance, pos string) string {
	return "(" + content + " | (((" + instance + " # (" + pos + " << 16)) & 2147483647) << 32))"
}

// sum is the same for what was read.
func sum(content, instance, pos int64) int64 {
	return content | ((instance^(pos<<16))&0x7fffffff)<<32
}
