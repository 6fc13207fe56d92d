/* client/tools/events/blocks.c - tables of parts, blocks and families; see blocks.h. */
#include "client/tools/events/blocks.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_FIRST 1024u

/* A part that blocks of a family have, as rank, layer, and K or V. */
struct part_name {
    struct sl_table_node node;
    uint64_t key_count; /* keys that are this part of a block */
    uint32_t length;
    char text[];
};

struct block;

struct family {
    struct sl_table_node node;
    struct family *next_touched;
    bool touched;
    struct block *first, *first_touched;
    struct sl_table parts;
    uint32_t live, live_settled; /* parts with keys; at the last settle */
    uint32_t group_index, length;
    char *model;
    char text[];
};

struct block {
    struct sl_table_node node;   /* by family and hash */
    struct sl_table_node by_key; /* by sl_key_hash of its key, if it has one */
    struct family *family;
    struct block *next, **link; /* in the list of its family */
    struct block *next_touched;
    uint64_t parent_hash, committed_ns;
    uint64_t passed, climbed; /* the pass that last reported it; that last visited it */
    uint32_t part_count, counts[EV_MEDIUM_COUNT];
    uint8_t announced, wanted; /* bits of media: reported as stored; whole there */
    bool touched;
    struct ev_hash hash;
};

struct part {
    struct sl_table_node node; /* by the key's id */
    struct block *block;
    struct part_name *name;
    uint8_t media; /* bits */
};

struct ev_blocks {
    char *model;
    struct sl_table families, blocks, by_key, parts;
    struct family *first_touched;
    struct ev_blocks_stats stats;
    struct block **stack;
    uint32_t stack_room;
    uint64_t pass;
    struct sl_block_name name; /* of the key at hand */
    bool clears;               /* report CLEARED next */
    bool beginning;            /* the reported blocks are older than this follower */
};

#define BIT(medium) ((uint8_t)(1u << (medium)))

sl_err ev_blocks_create(const char *model, struct ev_blocks **out, struct sl_error *why)
{
    struct ev_blocks *blocks = calloc(1, sizeof(*blocks));
    if (blocks == NULL || (blocks->model = strdup(model)) == NULL ||
        !sl_table_reserve(&blocks->families, 64) ||
        !sl_table_reserve(&blocks->blocks, TABLE_FIRST) ||
        !sl_table_reserve(&blocks->by_key, TABLE_FIRST) ||
        !sl_table_reserve(&blocks->parts, TABLE_FIRST)) {
        ev_blocks_destroy(&blocks);
        return sl_fail(why, SL_ERR_NO_MEMORY, "blocks of the index");
    }
    blocks->clears = true;
    *out = blocks;
    return SL_OK;
}

/* Removes and gives one node of a table; NULL: it is empty. */
static struct sl_table_node *table_take(struct sl_table *table, uint32_t *head)
{
    while (table->heads != NULL && *head < table->head_count) {
        struct sl_table_node *node = table->heads[*head];
        if (node != NULL) {
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed nodes are not in the table */
            sl_table_remove(table, node);
            return node;
        }
        (*head)++;
    }
    return NULL;
}

static void family_free(struct family *family)
{
    uint32_t head = 0;
    struct sl_table_node *node;
    while ((node = table_take(&family->parts, &head)) != NULL) {
        free(SL_TABLE_ITEM(node, struct part_name, node));
    }
    sl_table_fini(&family->parts);
    free(family->model);
    free(family);
}

static void all_free(struct ev_blocks *blocks)
{
    struct sl_table_node *node;
    uint32_t head = 0;
    while ((node = table_take(&blocks->parts, &head)) != NULL) {
        free(SL_TABLE_ITEM(node, struct part, node));
    }
    head = 0;
    while ((node = table_take(&blocks->blocks, &head)) != NULL) {
        struct block *block = SL_TABLE_ITEM(node, struct block, node);
        sl_table_remove(&blocks->by_key, &block->by_key);
        free(block);
    }
    head = 0;
    while ((node = table_take(&blocks->families, &head)) != NULL) {
        family_free(SL_TABLE_ITEM(node, struct family, node));
    }
    blocks->first_touched = NULL;
    blocks->stats = (struct ev_blocks_stats){.keys_other = blocks->stats.keys_other};
}

void ev_blocks_destroy(struct ev_blocks **blocks)
{
    if (blocks == NULL || *blocks == NULL) {
        return;
    }
    all_free(*blocks);
    sl_table_fini(&(*blocks)->families);
    sl_table_fini(&(*blocks)->blocks);
    sl_table_fini(&(*blocks)->by_key);
    sl_table_fini(&(*blocks)->parts);
    free((*blocks)->stack);
    free((*blocks)->model);
    free(*blocks);
    *blocks = NULL;
}

void ev_blocks_clear(struct ev_blocks *blocks)
{
    all_free(blocks);
    blocks->clears = true;
}

/* ---- finding and making ---- */

/* Makes room for one more node; the items do not move. A table that cannot grow is only slower. */
static void table_room(struct sl_table *table)
{
    if (table->count < table->head_count) {
        return;
    }
    struct sl_table wider = {0};
    struct sl_table_node *node;
    uint32_t head = 0;
    if (table->head_count > UINT32_MAX / 4 || !sl_table_reserve(&wider, table->head_count * 2)) {
        return;
    }
    while ((node = table_take(table, &head)) != NULL) {
        sl_table_add(&wider, node, node->hash);
    }
    sl_table_fini(table);
    *table = wider;
}

static struct family *family_of(struct ev_blocks *blocks, const struct sl_block_name *name)
{
    uint64_t hash = sl_key_hash(name->family, name->family_length);
    struct family *family = SL_TABLE_FIRST(&blocks->families, hash, struct family, node);
    while (family != NULL && (family->length != name->family_length ||
                              memcmp(family->text, name->family, family->length) != 0)) {
        family = SL_TABLE_NEXT(family, struct family, node);
    }
    if (family != NULL) {
        return family;
    }
    family = calloc(1, sizeof(*family) + name->family_length);
    if (family == NULL || !sl_table_reserve(&family->parts, 16) ||
        (family->model = strndup(name->model, name->model_length)) == NULL) {
        if (family != NULL) {
            family_free(family);
        }
        return NULL;
    }
    family->group_index = name->group_index;
    family->length = name->family_length;
    memcpy(family->text, name->family, name->family_length);
    table_room(&blocks->families);
    sl_table_add(&blocks->families, &family->node, hash);
    return family;
}

static struct part_name *part_name_of(struct family *family, const struct sl_block_name *name)
{
    uint64_t hash = sl_key_hash(name->part, name->part_length);
    struct part_name *part = SL_TABLE_FIRST(&family->parts, hash, struct part_name, node);
    while (part != NULL && (part->length != name->part_length ||
                            memcmp(part->text, name->part, part->length) != 0)) {
        part = SL_TABLE_NEXT(part, struct part_name, node);
    }
    if (part != NULL) {
        return part;
    }
    part = calloc(1, sizeof(*part) + name->part_length);
    if (part != NULL) {
        part->length = name->part_length;
        memcpy(part->text, name->part, name->part_length);
        table_room(&family->parts);
        sl_table_add(&family->parts, &part->node, hash);
    }
    return part;
}

static struct block *block_of(struct ev_blocks *blocks, struct family *family,
                              const struct sl_block_name *name)
{
    uint64_t hash = sl_key_hash(name->hash, name->hash_length) ^ family->node.hash;
    struct block *block = SL_TABLE_FIRST(&blocks->blocks, hash, struct block, node);
    while (block != NULL && (block->family != family || block->hash.length != name->hash_length ||
                             memcmp(block->hash.bytes, name->hash, name->hash_length) != 0)) {
        block = SL_TABLE_NEXT(block, struct block, node);
    }
    if (block != NULL) {
        return block;
    }
    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return NULL;
    }
    block->family = family;
    block->hash.length = (uint8_t)name->hash_length;
    memcpy(block->hash.bytes, name->hash, name->hash_length);
    block->hash.number = sl_block_name_number(name, &block->hash.is_signed);
    block->next = family->first;
    block->link = &family->first;
    if (family->first != NULL) {
        family->first->link = &block->next;
    }
    family->first = block;
    table_room(&blocks->blocks);
    sl_table_add(&blocks->blocks, &block->node, hash);
    return block;
}

static void family_touch(struct ev_blocks *blocks, struct family *family)
{
    if (!family->touched) {
        family->touched = true;
        family->next_touched = blocks->first_touched;
        blocks->first_touched = family;
    }
}

static void block_touch(struct ev_blocks *blocks, struct block *block)
{
    family_touch(blocks, block->family);
    if (!block->touched) {
        block->touched = true;
        block->next_touched = block->family->first_touched;
        block->family->first_touched = block;
    }
}

/* ---- changes ---- */

static void part_place(struct ev_blocks *blocks, struct part *part, uint8_t media)
{
    for (enum ev_medium medium = 0; medium < EV_MEDIUM_COUNT; medium++) {
        part->block->counts[medium] +=
            ((media & BIT(medium)) != 0) - (uint32_t)((part->media & BIT(medium)) != 0);
    }
    part->media = media;
    block_touch(blocks, part->block);
}

static void part_add(struct ev_blocks *blocks, const struct sl_index_change *change, uint8_t media)
{
    struct sl_block_name *name = &blocks->name;
    if (!sl_block_name_parse(change->key, change->key_length, change->block_length, name)) {
        blocks->stats.keys_other++;
        return;
    }
    if (blocks->model[0] != '\0' && (strlen(blocks->model) != name->model_length ||
                                     memcmp(blocks->model, name->model, name->model_length) != 0)) {
        return;
    }
    struct part *part = calloc(1, sizeof(*part));
    struct family *family = part != NULL ? family_of(blocks, name) : NULL;
    struct part_name *part_name = family != NULL ? part_name_of(family, name) : NULL;
    struct block *block = part_name != NULL ? block_of(blocks, family, name) : NULL;
    if (block == NULL) {
        blocks->stats.no_memory = true;
        free(part);
        return;
    }
    part->block = block;
    part->name = part_name;
    table_room(&blocks->parts);
    sl_table_add(&blocks->parts, &part->node, sl_table_hash(change->id));
    blocks->stats.parts++;
    family->live += part_name->key_count++ == 0;
    block->part_count++;
    if (change->block_length > 0) {
        block->parent_hash = change->parent_hash;
        block->committed_ns = change->committed_ns;
    }
    if (change->block_length > 0 && block->by_key.link == NULL) {
        table_room(&blocks->by_key);
        sl_table_add(&blocks->by_key, &block->by_key,
                     sl_key_hash(change->key, change->block_length));
    }
    part_place(blocks, part, media);
}

static void part_remove(struct ev_blocks *blocks, struct part *part)
{
    part_place(blocks, part, 0);
    part->block->part_count--;
    part->name->key_count--;
    if (part->name->key_count == 0) {
        struct family *family = part->block->family;
        family->live--;
        sl_table_remove(&family->parts, &part->name->node);
        free(part->name);
    }
    sl_table_remove(&blocks->parts, &part->node);
    blocks->stats.parts--;
    free(part);
}

bool ev_blocks_change(void *context, const struct sl_index_change *change)
{
    struct ev_blocks *blocks = context;
    uint8_t media =
        (uint8_t)((change->memory ? BIT(EV_MEMORY) : 0) | (change->disk ? BIT(EV_DISK) : 0));
    struct part *part =
        SL_TABLE_FIRST(&blocks->parts, sl_table_hash(change->id), struct part, node);
    if (part == NULL && change->there) {
        part_add(blocks, change, media);
    } else if (part != NULL && change->there) {
        part_place(blocks, part, media);
    } else if (part != NULL) {
        part_remove(blocks, part);
    }
    return true;
}

/* ---- reporting ---- */

static void event_report(const struct ev_blocks *blocks, enum ev_type type, enum ev_medium medium,
                         struct block *block, ev_event_fn fn, void *context)
{
    struct block *parent = NULL;
    bool fresh = block->announced == 0 && !blocks->beginning;
    if (type == EV_STORED && block->parent_hash != 0) {
        parent = SL_TABLE_FIRST(&blocks->by_key, block->parent_hash, struct block, by_key);
    }
    const struct ev_event event = {.type = type,
                                   .medium = medium,
                                   .hash = &block->hash,
                                   .parent = parent != NULL ? &parent->hash : NULL,
                                   .model = block->family->model,
                                   .group_index = block->family->group_index,
                                   .family = block->family,
                                   .committed_ns = fresh ? block->committed_ns : 0};
    fn(context, &event);
}

static void cleared_report(ev_event_fn fn, void *context)
{
    const struct ev_event event = {.type = EV_CLEARED};
    fn(context, &event);
}

/* Whether this pass has to report the block as stored. */
static bool pending(const struct ev_blocks *blocks, const struct block *block,
                    enum ev_medium medium, bool all)
{
    return all ? (block->announced & BIT(medium)) != 0 && block->passed != blocks->pass
               : (block->wanted & ~block->announced & BIT(medium)) != 0;
}

/* Reports the block as stored, after those before it in its chain that also have to be reported. */
static void stored_report(struct ev_blocks *blocks, struct block *block, enum ev_medium medium,
                          bool all, ev_event_fn fn, void *context)
{
    uint32_t depth = 0;
    while (block != NULL && block->climbed != blocks->pass && pending(blocks, block, medium, all) &&
           SL_ARRAY_ROOM(blocks->stack, blocks->stack_room, depth + 1)) {
        block->climbed = blocks->pass; /* ends the walk also in cyclic chains */
        blocks->stack[depth++] = block;
        block = block->parent_hash == 0
                    ? NULL
                    : SL_TABLE_FIRST(&blocks->by_key, block->parent_hash, struct block, by_key);
    }
    if (depth == 0 && block != NULL && block->climbed != blocks->pass &&
        pending(blocks, block, medium, all)) {
        blocks->stats.no_memory = true; /* the stack could not hold even the block itself */
    }
    while (depth > 0) {
        block = blocks->stack[--depth];
        event_report(blocks, EV_STORED, medium, block, fn, context);
        block->passed = blocks->pass;
        if (!all) {
            block->announced |= BIT(medium);
            blocks->stats.announced[medium]++;
        }
    }
}

/* Computes where a family's touched blocks are whole; all its blocks if its set of parts has
 * changed. */
static void family_settle(struct family *family)
{
    if (family->live != family->live_settled) {
        family->live_settled = family->live;
        family->first_touched = NULL;
        for (struct block *block = family->first; block != NULL; block = block->next) {
            block->touched = true;
            block->next_touched = family->first_touched;
            family->first_touched = block;
        }
    }
    for (struct block *block = family->first_touched; block != NULL; block = block->next_touched) {
        block->wanted = 0;
        for (enum ev_medium medium = 0; medium < EV_MEDIUM_COUNT; medium++) {
            bool whole = family->live > 0 && block->counts[medium] == family->live;
            block->wanted = (uint8_t)(block->wanted | (whole ? BIT(medium) : 0));
        }
    }
}

static void family_report(struct ev_blocks *blocks, struct family *family, enum ev_type type,
                          bool silent, ev_event_fn fn, void *context)
{
    for (enum ev_medium medium = 0; medium < EV_MEDIUM_COUNT; medium++) {
        blocks->pass++;
        for (struct block *block = family->first_touched; block != NULL;
             block = block->next_touched) {
            if (type == EV_STORED) {
                stored_report(blocks, block, medium, false, fn, context);
            } else if ((block->announced & ~block->wanted & BIT(medium)) != 0) {
                if (!silent) {
                    event_report(blocks, EV_REMOVED, medium, block, fn, context);
                }
                block->announced &= (uint8_t)~BIT(medium);
                blocks->stats.announced[medium]--;
            }
        }
    }
}

static void block_free(struct ev_blocks *blocks, struct block *block)
{
    *block->link = block->next;
    if (block->next != NULL) {
        block->next->link = block->link;
    }
    sl_table_remove(&blocks->by_key, &block->by_key);
    sl_table_remove(&blocks->blocks, &block->node);
    free(block);
}

static void family_end(struct ev_blocks *blocks, struct family *family)
{
    struct block *next = family->first_touched;
    while (next != NULL) {
        struct block *block = next;
        next = block->next_touched;
        block->touched = false;
        if (block->part_count == 0) {
            block_free(blocks, block);
        }
    }
    family->first_touched = NULL;
    family->touched = false;
    if (family->first == NULL) {
        sl_table_remove(&blocks->families, &family->node);
        family_free(family);
    }
}

void ev_blocks_settle(struct ev_blocks *blocks, ev_event_fn fn, void *context)
{
    uint64_t announced = blocks->stats.announced[EV_MEMORY] + blocks->stats.announced[EV_DISK],
             left = announced;
    bool comes = false;
    for (struct family *family = blocks->first_touched; family != NULL;
         family = family->next_touched) {
        family_settle(family);
        for (const struct block *block = family->first_touched; block != NULL;
             block = block->next_touched) {
            left -= (uint64_t)__builtin_popcount(block->announced & ~block->wanted);
            comes = comes || (block->wanted & ~block->announced) != 0;
        }
    }
    bool cleared = blocks->clears || (announced > 0 && left == 0 && !comes);
    blocks->beginning = blocks->clears;
    if (cleared) {
        cleared_report(fn, context);
        blocks->clears = false;
    }
    for (struct family *family = blocks->first_touched; family != NULL;
         family = family->next_touched) {
        family_report(blocks, family, EV_REMOVED, cleared, fn, context);
    }
    struct family *next = blocks->first_touched;
    blocks->first_touched = NULL;
    while (next != NULL) {
        struct family *family = next;
        next = family->next_touched;
        family_report(blocks, family, EV_STORED, false, fn, context);
        family_end(blocks, family);
    }
}

void ev_blocks_report_all(struct ev_blocks *blocks, ev_event_fn fn, void *context)
{
    cleared_report(fn, context);
    for (enum ev_medium medium = 0; medium < EV_MEDIUM_COUNT; medium++) {
        blocks->pass++;
        for (uint32_t head = 0; head < blocks->families.head_count; head++) {
            for (struct sl_table_node *node = blocks->families.heads[head]; node != NULL;
                 node = node->next) {
                const struct family *family = SL_TABLE_ITEM(node, struct family, node);
                for (struct block *block = family->first; block != NULL; block = block->next) {
                    stored_report(blocks, block, medium, true, fn, context);
                }
            }
        }
    }
}

void ev_blocks_stats(const struct ev_blocks *blocks, struct ev_blocks_stats *out)
{
    *out = blocks->stats;
    out->families = blocks->families.count;
}
