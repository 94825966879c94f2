package postgres

import (
	"fmt"

	"github.com/flue-go/flue/store"
)

// statements are all that a store runs, with its schema in them.
type statements struct {
	lock              string
	append, appendAll string
	admit             string
	abort             string

	claim, take, seize, release, renew, forget string

	read, instance, submission, attachment string
	instances, unsettled                   string

	saveCheckpoint, checkpoint string
	owned, within, replace     string

	accepted, attached                                             string
	importInstance, importFound, importEpoch                       string
	importBatches, importSubmissions, importAttachment, importBlob string

	heads, ownedBy, unowned, nodes, work string
	numbers                              string
}

func newStatements(schema string) statements {
	sql := func(format string, args ...any) string { return in(schema, fmt.Sprintf(format, args...)) }
	return statements{
		lock:       sql(lockSQL),
		append:     sql(appendSQL, sumSQL("l.sum", "l.id", "l.pos")),
		appendAll:  sql(appendAllSQL, sumSQL("w.sum", "k.id", "k.pos")),
		admit:      sql(admitSQL, sumSQL("$7::bigint", "t.id", "t.pos"), sumSQL("$13::bigint", "b.id", "0")),
		abort:      sql(abortSQL, sumSQL("$3::bigint", "k.id", "k.head")),
		claim:      sql(claimSQL),
		take:       sql(takeSQL),
		seize:      sql(seizeSQL),
		release:    sql(releaseSQL),
		renew:      sql(renewSQL),
		forget:     sql(forgetSQL),
		read:       sql(readSQL, store.PageBytes),
		instance:   sql(`SELECT uid, incarnation, head, unsettled FROM @.instances WHERE agent = $1::text AND name = $2::text`),
		submission: sql(submissionSQL),
		attachment: sql(attachmentSQL),
		instances:  sql(instancesSQL),
		unsettled:  sql(unsettledSQL),

		saveCheckpoint: sql(saveCheckpointSQL, sumSQL("$6::bigint", "l.id", "$5::bigint")),
		checkpoint:     sql(checkpointSQL),
		owned:          sql(ownedSQL),
		within:         sql(withinSQL),
		replace:        sql(replaceSQL),

		accepted:          sql(acceptedSQL),
		attached:          sql(attachedSQL),
		importInstance:    sql(importSQL),
		importFound:       sql(`SELECT uid FROM @.instances WHERE agent = $1::text AND name = $2::text`),
		importEpoch:       sql(`UPDATE @.instances SET epoch = $2::bigint WHERE id = $1::bigint`),
		importBatches:     sql(importBatchesSQL),
		importSubmissions: sql(importSubmissionsSQL),
		importAttachment:  sql(importAttachmentSQL),
		importBlob:        sql(importBlobSQL),

		heads:   sql(headsSQL),
		ownedBy: sql(ownedBySQL),
		unowned: sql(unownedSQL),
		nodes:   sql(nodesSQL),
		work:    sql(workSQL),
		numbers: sql(numbersSQL),
	}
}
