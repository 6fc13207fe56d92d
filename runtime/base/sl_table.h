/* runtime/base/sl_table.h - a hash table of items that carry their own nodes.
 *
 * An item has a node for each table that it is in, stays where it is while it is in one, and is
 * found by a hash. Several items may have one hash: a caller whose hashes are no ids compares. A
 * table takes memory for its heads alone, and only in sl_table_reserve. */
#ifndef SL_TABLE_H
#define SL_TABLE_H

#include "runtime/base/sl_error.h"

struct sl_table_node {
    struct sl_table_node *next, **link; /* link NULL: in no table */
    uint64_t hash;
};

struct sl_table { /* zeroes: empty; one thread at a time */
    struct sl_table_node **heads;
    uint32_t head_count; /* a power of two */
    uint32_t count;
};

/* Makes a table fit for count items; it takes more, but is slower then. False: no memory. */
bool sl_table_reserve(struct sl_table *table, uint32_t count);
void sl_table_clear(struct sl_table *table); /* before its items move: each is added anew */
void sl_table_fini(struct sl_table *table);  /* the items are the caller's */

/* The hash of an id. Ids that differ have hashes that differ. */
static inline uint64_t sl_table_hash(uint64_t id)
{
    uint64_t mixed = id * UINT64_C(0x9e3779b97f4a7c15); /* its upper bits depend on all bits */
    return mixed >> 32 | mixed << 32;
}

/* A hash is asked for, or added, soon: its head is fetched from memory. */
static inline void sl_table_fetch(const struct sl_table *table, uint64_t hash)
{
    __builtin_prefetch(&table->heads[hash & (table->head_count - 1)], 1);
}

/* Of a table with heads: the low bits choose one. The newest of a hash comes first, until
 * sl_table_reserve moves them. */
static inline void sl_table_add(struct sl_table *table, struct sl_table_node *node, uint64_t hash)
{
    struct sl_table_node **head = &table->heads[hash & (table->head_count - 1)];
    struct sl_table_node *next = *head;
    node->next = next;
    node->link = head;
    node->hash = hash;
    if (next != NULL) {
        next->link = &node->next;
    }
    *head = node;
    table->count++;
}

/* Also of a node that is in no table. */
static inline void sl_table_remove(struct sl_table *table, struct sl_table_node *node)
{
    struct sl_table_node **link = node->link, *next = node->next;
    if (link == NULL) {
        return;
    }
    *link = next;
    if (next != NULL) {
        next->link = link;
    }
    node->link = NULL;
    table->count--;
}

/* From the node on, the first with the hash; NULL: none has it. */
static inline struct sl_table_node *sl_table_seek(struct sl_table_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

static inline struct sl_table_node *sl_table_first(const struct sl_table *table, uint64_t hash)
{
    return table->count == 0 ? NULL
                             : sl_table_seek(table->heads[hash & (table->head_count - 1)], hash);
}

static inline void *sl_table_item(struct sl_table_node *node, size_t offset_bytes)
{
    return node == NULL ? NULL : (unsigned char *)node - offset_bytes;
}

/* The item of a node, NULL of NULL. */
#define SL_TABLE_ITEM(node, type, member) ((type *)sl_table_item(node, offsetof(type, member)))

/* The items of a hash, NULL after the last:
 *
 *     struct op *op = SL_TABLE_FIRST(&table, hash, struct op, node);
 *     while (op != NULL && !op_is(op, wanted)) {
 *         op = SL_TABLE_NEXT(op, struct op, node);
 *     }
 */
#define SL_TABLE_FIRST(table, hash, type, member) \
    SL_TABLE_ITEM(sl_table_first(table, hash), type, member)
#define SL_TABLE_NEXT(item, type, member) \
    SL_TABLE_ITEM(sl_table_seek((item)->member.next, (item)->member.hash), type, member)

#endif
