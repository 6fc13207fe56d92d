/* client/top/tables.h - the views that are tables, between views.c and tables.c. */
#ifndef SL_CLIENT_TOP_TABLES_H
#define SL_CLIENT_TOP_TABLES_H

#include "client/top/views.h"

/* One more line, cut to the width; when there are TOP_LINES_MAX, none. */
void top_line_add(struct top_lines *lines, enum top_style style, const char *format, ...)
    SL_PRINTF(3, 4);

void top_memory_lines(const struct top_state *state, struct top_lines *lines);
void top_disk_lines(const struct top_state *state, struct top_lines *lines);
void top_peer_lines(const struct top_state *state, struct top_lines *lines);
void top_engine_lines(const struct top_state *state, struct top_lines *lines);
void top_actor_lines(const struct top_state *state, struct top_lines *lines);

#endif
