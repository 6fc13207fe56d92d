/* client/top/views.h - what `sluicectl top` shows, as lines of text: the screen and --once print the
 * same ones. */
#ifndef SL_CLIENT_TOP_VIEWS_H
#define SL_CLIENT_TOP_VIEWS_H

#include "client/lib/sluice.h"
#include "client/top/figures.h"
#include "client/top/holdings.h"

#define TOP_HISTORY_MAX  512u
#define TOP_LINES_MAX    2200u
#define TOP_LINE_BYTES   640u /* a cell of a sparkline takes three */
#define TOP_FILTER_BYTES 32u

enum top_view {
    TOP_VIEW_OVERVIEW,
    TOP_VIEW_MEMORY,
    TOP_VIEW_DISKS,
    TOP_VIEW_PEERS,
    TOP_VIEW_ACTORS,
    TOP_VIEW_ENGINES,
    TOP_VIEW_HELP,
    TOP_VIEW_COUNT
};
enum top_style { TOP_PLAIN, TOP_HEAD, TOP_GOOD, TOP_BAD };

struct top_line {
    char text[TOP_LINE_BYTES]; /* UTF-8; a cell a character */
    enum top_style style;
};
struct top_lines {
    struct top_line lines[TOP_LINES_MAX];
    uint32_t count;
    uint32_t width; /* cells; longer lines are cut */
};

/* Of an interval. */
struct top_point {
    uint64_t hits, references, bytes, evicted_bytes;
    double seconds;
};
struct top_peers {
    struct sl_cluster_info self;
    struct sl_node_info nodes[SL_NODES_MAX];
    uint32_t count;
    bool asked;
    struct sl_error why; /* code SL_OK: they are known */
};
struct top_state {
    char instance[64];
    struct top_figures now, last; /* since the node was started; the last interval alone */
    struct top_point history[TOP_HISTORY_MAX];
    uint32_t point_count; /* of all there were; the newest is at (point_count - 1) % HISTORY_MAX */
    const struct top_group *groups;
    uint32_t group_count;
    bool groups_whole;
    struct top_peers peers;
    char problem[256]; /* of the node as a whole; "": none */
    enum top_view view;
    enum top_grouping grouping;
    uint32_t sort; /* column of the view, from 0 */
    bool reverse, paused, ascii;
    char filter[TOP_FILTER_BYTES]; /* lines of tables whose name has it */
    uint64_t interval_ns;
};

/* Takes a new reading, made of shm_dir, into now, last and history. */
void top_state_take(struct top_state *state, const struct top_figures *read);
/* The view, with its title. lines->width says how wide. */
void top_view_draw(const struct top_state *state, struct top_lines *lines);
/* How many columns the view's table can be sorted by; 0: it has none. */
uint32_t top_view_columns(enum top_view view);
/* Its name on the command line. */
const char *top_view_name(enum top_view view);

/* A line of the values, newest at the right, drawn from 0 to the highest one; at most `cells` of
 * them. out needs 3 * cells + 1 bytes. */
void top_spark(const double *values, uint32_t count, uint32_t cells, bool ascii, char *out);
/* "12.3k", "4.5M"; at most 6 characters. */
const char *top_count_text(double value, char out[32]);
/* "<20us": of the end of a bucket; "-" for 0. */
const char *top_time_text(uint64_t ns, char out[32]);

#endif
