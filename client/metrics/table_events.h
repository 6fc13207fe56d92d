/* client/metrics/table_events.h - metrics of the publisher of events: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_EVENTS_H
#define SL_CLIENT_METRICS_TABLE_EVENTS_H

/* clang-format off */
/* What sluice-events counts. */
#define METRICS_EVENTS(X) \
    X(EVENTS, "messages", COUNTER, ONE, "sluice_events_messages_total", "", \
      "Messages that were published for routers, empty ones included.") \
    X(EVENTS, "message_bytes", COUNTER, BYTES, "sluice_events_message_bytes_total", "", \
      "Bytes of these messages.") \
    X(EVENTS, "blocks_stored", COUNTER, ONE, "sluice_events_total", "event=stored", \
      "Events that were published: blocks that came to a medium, that went from one, and that all went.") \
    X(EVENTS, "blocks_removed", COUNTER, ONE, "sluice_events_total", "event=removed", \
      "") \
    X(EVENTS, "cleared", COUNTER, ONE, "sluice_events_total", "event=cleared", \
      "") \
    X(EVENTS, "told_ns", HISTOGRAM, NS, "sluice_events_delay_seconds", "", \
      "Time from the moment that a block became visible until its event; blocks that engines stored, not single values.") \
    X(EVENTS, "blocks_memory", GAUGE, ONE, "sluice_events_blocks", "medium=memory", \
      "Blocks that are whole there, as told.") \
    X(EVENTS, "blocks_disk", GAUGE, ONE, "sluice_events_blocks", "medium=disk", \
      "") \
    X(EVENTS, "families", GAUGE, ONE, "sluice_events_families", "", \
      "Kinds of blocks: models, groups, layouts.") \
    X(EVENTS, "keys_other", COUNTER, ONE, "sluice_events_keys_other_total", "", \
      "Times that a key came, or moved to another tier, that belongs to no block.") \
    X(EVENTS, "replays", COUNTER, ONE, "sluice_events_replays_total", "", \
      "Requests for missed messages that were answered.") \
    X(EVENTS, "requests_refused", COUNTER, ONE, "sluice_events_requests_refused_total", "", \
      "Requests that were none, or were too many at once.") \
    X(EVENTS, "connections_refused", COUNTER, ONE, "sluice_events_refused_total", "what=connections", \
      "What was over a bound: connections that were not accepted, topics that had no effect, and connections that were ended.") \
    X(EVENTS, "topics_refused", COUNTER, ONE, "sluice_events_refused_total", "what=topics", \
      "") \
    X(EVENTS, "connections_ended", COUNTER, ONE, "sluice_events_refused_total", "what=ended", \
      "") \
    X(EVENTS, "snapshots", COUNTER, ONE, "sluice_events_snapshots_total", "", \
      "Times that all blocks were put together for such requests.") \
    X(EVENTS, "kept_messages", GAUGE, ONE, "sluice_events_kept_messages", "", \
      "Messages that are kept for who missed them.") \
    X(EVENTS, "kept_bytes", GAUGE, BYTES, "sluice_events_kept_bytes", "", \
      "Bytes of these messages.") \
    X(EVENTS, "walks", COUNTER, ONE, "sluice_events_walks_total", "", \
      "Times that the index was compared with what was told.") \
    X(EVENTS, "walk_ns", GAUGE, NS, "sluice_events_walk_seconds", "", \
      "Time that the last such comparison took.") \
    X(EVENTS, "indexes", COUNTER, ONE, "sluice_events_indexes_total", "", \
      "Times that an index was opened: more than one says that it was made anew, or the publisher was.")
/* clang-format on */

#endif
