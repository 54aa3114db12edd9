/* libfyke: packet filters that change while they run. Written by cbindgen. */

#ifndef FYKE_H
#define FYKE_H

#include <stddef.h>
#include <stdint.h>

/*
 Predefined operations for `fyke_select_op`. Those with parameters start without any,
 and are false until
 `fyke_add_param` has added one.
 */
typedef enum fyke_op {
  /*
   True for every frame.
   */
  FYKE_TRUE = 0,
  /*
   False for every frame.
   */
  FYKE_NEVER = 1,
  /*
   IPv4.
   */
  FYKE_ETHER_IP = 2,
  /*
   IPv6.
   */
  FYKE_ETHER_IP6 = 3,
  /*
   ARP.
   */
  FYKE_ETHER_ARP = 4,
  /*
   IPv4, TCP, no later fragment.
   */
  FYKE_ETHER_IP_TCP_NONFRAG = 5,
  /*
   IPv4, UDP, no later fragment.
   */
  FYKE_ETHER_IP_UDP_NONFRAG = 6,
  /*
   IPv4 source address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_SRC = 7,
  /*
   IPv4 destination address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_DST = 8,
  /*
   Either IPv4 address under a mask (`arg`); up to 6 parameters.
   */
  FYKE_IP_HOST = 9,
  /*
   Source port; up to 12 parameters.
   */
  FYKE_PORT_SRC = 10,
  /*
   Destination port; up to 12 parameters.
   */
  FYKE_PORT_DST = 11,
  /*
   Either port; up to 12 parameters.
   */
  FYKE_PORT = 12,
  /*
   EtherType; up to 14 parameters.
   */
  FYKE_ETHER_TYPE = 13,
} fyke_op;

/*
 A filter in the kernel.
 */
typedef struct fyke_filter fyke_filter;

/*
 Totals of the frames of a filter's sockets.
 */
typedef struct fyke_counts {
  /*
   Frames that a pass accepted, or that were accepted because there was no pass.
   */
  uint64_t accepted;
  /*
   Frames that no pass accepted.
   */
  uint64_t rejected;
  /*
   Frames rejected because their evaluation would exceed the limit on work.
   */
  uint64_t capped;
} fyke_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Creates an empty filter, which accepts every frame, and attaches it to a packet socket
 unless `socket` is −1. Returns NULL on failure; `fyke_error(NULL)` has the reason.
 */
struct fyke_filter *fyke_open(int socket);

/*
 Attaches the filter to a packet socket and replaces the filter that the socket has.
 Several sockets may share one filter.
 */
int fyke_attach(struct fyke_filter *filter, int socket);

/*
 Frees the handle. Sockets keep the filter unchanged until they are closed.

 # Safety
 `filter` is NULL or came from `fyke_open`, and is not used afterwards.
 */
void fyke_close(struct fyke_filter *filter);

/*
 Adds a pass without instructions, which accepts every frame until it has some. Returns
 its number, from 1.
 */
int fyke_new_pass(struct fyke_filter *filter);

/*
 Deletes a pass.
 */
int fyke_del_pass(struct fyke_filter *filter, int id);

/*
 Copies a pass; returns the number of the copy.
 */
int fyke_dup_pass(struct fyke_filter *filter, int id);

/*
 Sets instruction `index` of a pass (from 0; the number of instructions appends) to a
 predefined operation, an `fyke_op`. `arg` is the mask of operations on addresses and
 unused otherwise. The operation has no parameters yet.
 */
int fyke_select_op(struct fyke_filter *filter, int id, size_t index, uint32_t op, uint32_t arg);

/*
 Adds a parameter: an alternative that the operation compares with.
 */
int fyke_add_param(struct fyke_filter *filter, int id, size_t index, uint32_t value);

/*
 Removes a parameter.
 */
int fyke_del_param(struct fyke_filter *filter, int id, size_t index, uint32_t value);

/*
 Overwrites word `word` (0 = command, 1 to 7 = parameters) of an instruction. The
 result must be a valid instruction.
 */
int fyke_poke_inst(struct fyke_filter *filter, int id, size_t index, size_t word, uint32_t value);

/*
 Replaces all texts and passes by a filter text (pcap-filter language, read as for a live
 capture), in one step. Returns its number, from 1, for `fyke_delete_text`; 0 for the empty
 text, which accepts every frame; or −1.
 */
int fyke_set_text(struct fyke_filter *filter, const char *text);

/*
 Adds a filter text, read as for a live capture: frames that it matches are accepted too.
 Returns its number, from 1 and never used twice, for `fyke_delete_text`; or −1.
 */
int fyke_add_text(struct fyke_filter *filter, const char *text);

/*
 Deletes a filter text by its number. The last one is deleted only while there are passes:
 without either, every frame is accepted, and `fyke_set_text` with an empty text does that.
 */
int fyke_delete_text(struct fyke_filter *filter, int id);

/*
 Returns the frames that a filter text accepted so far; 0 if the text does not exist.
 */
uint64_t fyke_text_accepted(struct fyke_filter *filter, int id);

/*
 Returns the frames that a pass accepted so far; 0 if the pass does not exist.
 */
uint64_t fyke_accepted(struct fyke_filter *filter, int id);

/*
 Returns the totals of the filter so far.
 */
struct fyke_counts fyke_count(struct fyke_filter *filter);

/*
 Writes the instructions of a pass as text into `buffer` (NUL-terminated, truncated if
 the buffer is too small). Returns the length of the whole text, or −1.

 # Safety
 `buffer` is NULL or has room for `size` bytes.
 */
int fyke_print_pass(struct fyke_filter *filter, int id, char *buffer, size_t size);

/*
 Returns the error of the last call on this filter; with NULL, that of the last
 `fyke_open` of this thread. Valid until the next call.
 */
const char *fyke_error(struct fyke_filter *filter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FYKE_H */
