/* runtime/net/fabric/core/aead_mb.c - see aead_fast.h. The library fills a table of functions for
 * this processor. The layout of the table depends on the version, so only the version of the header
 * is used. */
#include "runtime/net/fabric/core/aead_fast.h"

#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libIPSec_MB.so.1"
#define FEATURES                                                          \
    (IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ | IMB_FEATURE_AVX512_SKX | \
     IMB_FEATURE_SELF_TEST_PASS)
#define VERSION_PART 0xffffff00u /* patch releases have the same table */

struct sl_aead_fast {
    _Alignas(64) struct gcm_key_data key; /* read in units of 64 bytes */
    struct gcm_context_data record;
};

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static IMB_MGR *table; /* read-only, for all threads; NULL: unavailable */

static void symbol(void *library, const char *name, void *at)
{
    void *found = dlsym(library, name);
    memcpy(at, &found, sizeof(found)); /* a function's address, as in POSIX */
}

static void load(void)
{
    unsigned (*version)(void) = NULL;
    IMB_MGR *(*alloc)(uint64_t) = NULL;
    void (*init)(IMB_MGR *, IMB_ARCH *) = NULL;
    void (*release)(IMB_MGR *) = NULL;
    IMB_ARCH arch = IMB_ARCH_NONE;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        return;
    }
    symbol(library, "imb_get_version", &version);
    symbol(library, "alloc_mb_mgr", &alloc);
    symbol(library, "init_mb_mgr_auto", &init);
    symbol(library, "free_mb_mgr", &release);
    (void)dlclose(library); /* RTLD_NODELETE: it stays loaded */
    if (version == NULL || alloc == NULL || init == NULL || release == NULL ||
        ((version() ^ (unsigned)IMB_VERSION_NUM) & VERSION_PART) != 0) {
        return;
    }
    IMB_MGR *made = alloc(0);
    if (made == NULL) {
        return;
    }
    init(made, &arch);
    if (arch == IMB_ARCH_AVX512 && (made->features & FEATURES) == FEATURES) {
        table = made;
    } else {
        release(made);
    }
}

struct sl_aead_fast *sl_aead_fast_create(void)
{
    (void)pthread_once(&loaded, load);
    if (table == NULL) {
        return NULL;
    }
    struct sl_aead_fast *fast = aligned_alloc(_Alignof(struct sl_aead_fast), sizeof(*fast));
    if (fast != NULL) {
        memset(fast, 0, sizeof(*fast));
    }
    return fast;
}

void sl_aead_fast_destroy(struct sl_aead_fast **fast)
{
    if (*fast != NULL) {
        OPENSSL_cleanse(*fast, sizeof(**fast));
        free(*fast);
        *fast = NULL;
    }
}

void sl_aead_fast_key(struct sl_aead_fast *fast, const uint8_t key[16])
{
    IMB_AES128_GCM_PRE(table, key, &fast->key);
}

void sl_aead_fast_begin(struct sl_aead_fast *fast, const uint8_t nonce[SL_AEAD_NONCE_BYTES],
                        const uint8_t *head, size_t head_bytes)
{
    IMB_AES128_GCM_INIT(table, &fast->key, &fast->record, nonce, head, head_bytes);
}

void sl_aead_fast_part(struct sl_aead_fast *fast, bool seals, void *to, const void *from,
                       size_t length_bytes)
{
    if (seals) {
        IMB_AES128_GCM_ENC_UPDATE(table, &fast->key, &fast->record, to, from, length_bytes);
    } else {
        IMB_AES128_GCM_DEC_UPDATE(table, &fast->key, &fast->record, to, from, length_bytes);
    }
}

void sl_aead_fast_tag(struct sl_aead_fast *fast, bool seals, uint8_t tag[SL_AEAD_TAG_BYTES])
{
    if (seals) {
        IMB_AES128_GCM_ENC_FINALIZE(table, &fast->key, &fast->record, tag, SL_AEAD_TAG_BYTES);
    } else {
        IMB_AES128_GCM_DEC_FINALIZE(table, &fast->key, &fast->record, tag, SL_AEAD_TAG_BYTES);
    }
}
