/* libfyke: packet filters that change while they run. Written by cbindgen. */

#ifndef FYKE_H
#define FYKE_H

#include <stddef.h>
#include <stdint.h>

/* A range of ports, for FYKE_PORT_RANGE and the like. */
#define FYKE_RANGE(low, high) ((uint32_t)(low) | (uint32_t)(high) << 16)

/*
 Bit that is added to an operation to negate it.
 */
#define FYKE_NOT 2147483648

/*
 Result of `fyke_next`: no frame will come any more.
 */
#define FYKE_END -2

/*
 Predefined operations. `arg` and the parameters are numbers as they read: 0xc0a8fe00 is 192.168.254.0. All assume
 an untagged Ethernet header; those on addresses and ports do not read the EtherType, so a pass tests it first, as by
 FYKE_ETHER_IP_TCP_NONFRAG. Operations "all at once" are selected by `fyke_set_inst` only, the others also by
 `fyke_select_op`, and are then false until `fyke_add_param` has added a parameter.
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
   Source port of TCP or UDP in IPv4; up to 12 parameters.
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
  /*
   IPv4, this protocol (`arg`), no later fragment.
   */
  FYKE_ETHER_IP_PROTO_NONFRAG = 14,
  /*
   IPv4 source address; up to 7 parameters.
   */
  FYKE_IP_SRC_HOST = 15,
  /*
   IPv4 destination address; up to 7 parameters.
   */
  FYKE_IP_DST_HOST = 16,
  /*
   IPv4 source in a network and destination in another: address, mask, address, mask, all at once.
   */
  FYKE_IP_SRC_AND_DST_NET = 17,
  /*
   Source port and destination port, both, all at once.
   */
  FYKE_PORTS_BOTH = 18,
  /*
   Source port in one of up to 6 ranges, each FYKE_RANGE(low, high).
   */
  FYKE_PORT_RANGE_SRC = 19,
  /*
   Destination port in one of up to 6 ranges, each FYKE_RANGE(low, high).
   */
  FYKE_PORT_RANGE_DST = 20,
  /*
   Either port in one of up to 6 ranges, each FYKE_RANGE(low, high).
   */
  FYKE_PORT_RANGE = 21,
  /*
   First words of a TCP payload in IPv4, up to 5, all at once.
   */
  FYKE_TCP_PAYLOAD = 22,
  /*
   First words of a TCP payload under masks: word, mask, up to 2 of each, all at once.
   */
  FYKE_TCP_PAYLOAD_MASKED = 23,
  /*
   IPv6 source in a network: `arg` is the length of the prefix; four words, all at once.
   */
  FYKE_IP6_SRC = 24,
  /*
   IPv6 destination in a network, the same.
   */
  FYKE_IP6_DST = 25,
  /*
   Either IPv6 address in a network, the same.
   */
  FYKE_IP6_HOST = 26,
} fyke_op;

/*
 Kinds of changes.
 */
typedef enum fyke_change_kind {
  /*
   Adds a text.
   */
  FYKE_ADD = 0,
  /*
   Replaces all texts by one; an empty one accepts every frame.
   */
  FYKE_SET = 1,
  /*
   Deletes the text with a number, not the last one of all.
   */
  FYKE_DELETE = 2,
} fyke_change_kind;

/*
 A filter in the kernel.
 */
typedef struct fyke_filter fyke_filter;

/*
 Filter texts in user space, and a source.
 */
typedef struct fyke_reader fyke_reader;

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

/*
 A change of the texts in force.
 */
typedef struct fyke_change {
  /*
   A `fyke_change_kind`.
   */
  uint32_t kind;
  /*
   The text to add or set.
   */
  const char *text;
  /*
   The number of the text to delete; after the edit, the number of the text that was added or set, or 0.
   */
  uint32_t id;
} fyke_change;

/*
 A frame. Its bytes are valid until the next call of `fyke_next` or `fyke_reader_close` on the reader.
 */
typedef struct fyke_frame {
  /*
   Captured bytes, from the link header on.
   */
  const uint8_t *data;
  /*
   Number of captured bytes.
   */
  uint32_t captured;
  /*
   Number of bytes on the wire.
   */
  uint32_t length;
  /*
   Time of capture, nanoseconds since 1970.
   */
  uint64_t time_ns;
  /*
   Link type, the number of capture files (LINKTYPE_): 1 is Ethernet.
   */
  uint32_t link;
  /*
   Interface of the source, from 0.
   */
  uint32_t interface;
} fyke_frame;

/*
 Counts of a reader: seen = accepted + rejected + lost.
 */
typedef struct fyke_reader_counts {
  /*
   Frames of the source so far.
   */
  uint64_t seen;
  /*
   Frames that a text accepted, given to the program or about to be.
   */
  uint64_t accepted;
  /*
   Frames that no text accepted.
   */
  uint64_t rejected;
  /*
   Frames that were lost, because the program or the service was too slow.
   */
  uint64_t lost;
  /*
   1 if `seen` and `rejected` lack frames that were not counted: the service was killed after its last report, does
   not tell those beyond its policy, or the kernel has not counted them. Else 0.
   */
  uint64_t partial;
} fyke_reader_counts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Creates an empty filter, which accepts every frame, and attaches it to a packet socket
 unless `socket` is −1. Returns NULL on failure.
 */
struct fyke_filter *fyke_open(int socket);

/*
 Attaches the filter to a packet socket and replaces the filter that the socket has.
 Several sockets may share one filter.
 */
int fyke_attach(struct fyke_filter *filter, int socket);

/*
 Closes the handle; NULL is none. Sockets keep the filter unchanged until they are closed. Returns 0, or −1 if it is
 not open.
 */
int fyke_close(struct fyke_filter *filter);

/*
 Begins a group: edits of passes are collected until `fyke_commit`, and passes that begin in the group accept nothing
 before it. Texts are not part of it (`fyke_edit_texts`).
 */
int fyke_begin(struct fyke_filter *filter);

/*
 Puts the open group in force, in one step: a frame is judged by the passes before it or after it. Counts of passes
 stay. If the kernel refuses, nothing has changed and the group is still open.
 */
int fyke_commit(struct fyke_filter *filter);

/*
 Discards the open group.
 */
int fyke_abort(struct fyke_filter *filter);

/*
 Adds a pass without instructions. Returns its number, from 1; of a pass that begins in a group, from 2^30. A pass
 without instructions accepts every frame: begin a group first, and no frame sees it before it is complete.
 */
int fyke_new_pass(struct fyke_filter *filter);

/*
 Deletes a pass.
 */
int fyke_del_pass(struct fyke_filter *filter, int id);

/*
 Copies a pass; returns the number of the copy. The copy has no link to its original: the papers' tree of copied
 passes, where a copy skips what its parent has evaluated, is not built.
 */
int fyke_dup_pass(struct fyke_filter *filter,
                  int id);

/*
 Sets instruction `index` of a pass (from 0; the number of instructions appends) to a
 predefined operation without parameters, a `fyke_op`, or a `fyke_op` with FYKE_NOT. `arg` is unused unless the
 description of the operation names it.
 */
int fyke_select_op(struct fyke_filter *filter,
                   int id,
                   size_t index,
                   uint32_t op,
                   uint32_t arg);

/*
 The same with all parameters at once, so that no frame sees the operation without them.

 # Safety
 `values` has `count` elements.
 */
int fyke_set_inst(struct fyke_filter *filter,
                  int id,
                  size_t index,
                  uint32_t op,
                  uint32_t arg,
                  const uint32_t *values,
                  size_t count);

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
 Writes the instructions of a pass, one to a line, into `buffer` (NUL-terminated, truncated if
 the buffer is too small). Returns the length of the whole text, or −1.

 # Safety
 `buffer` is NULL or has room for `size` bytes.
 */
int fyke_print_pass(struct fyke_filter *filter, int id, char *buffer, size_t size);

/*
 Returns the error of the last call of this thread that failed, on any handle. `filter` is not used. Valid until this
 thread's next call that fails.
 */
const char *fyke_error(struct fyke_filter *filter);

/*
 Makes several changes of the texts of a filter in the kernel as one edit: all or none, between two frames.

 # Safety
 `changes` has `count` elements.
 */
int fyke_edit_texts(struct fyke_filter *filter,
                    struct fyke_change *changes,
                    size_t count);

/*
 Opens a reader: a capture file, "serve:NAME" (a running `fyke serve`), or an interface (which needs CAP_NET_RAW),
 with a filter text; the empty text accepts every frame. Returns NULL on failure.
 */
struct fyke_reader *fyke_reader_open(const char *source,
                                     const char *text);

/*
 Opens a reader without a source, for frames that the program has; `link` is libpcap's name of their link type, such
 as "EN10MB". It needs no rights. Returns NULL on failure.
 */
struct fyke_reader *fyke_reader_of(const char *link,
                                   const char *text);

/*
 Judges a frame that the program has: 1 accepted, 0 rejected, or −1. `length` is that on the wire, if bytes are
 missing, else 0.

 # Safety
 `data` has `captured` bytes.
 */
int fyke_match(struct fyke_reader *reader,
               const uint8_t *data,
               size_t captured,
               uint32_t length);

/*
 Waits for accepted frames and stores up to `count` of them. Returns their number, 0 if none came within
 `timeout_ms` (negative: no limit), FYKE_END at the end of a file or of the service, or −1; a service that was
 killed is an error, also in all further calls. One thread at a time may use the frames of a reader; other threads
 may edit, count and close it meanwhile: they wait for a twentieth of a second at most, and after
 `fyke_reader_close` this call returns −1.

 # Safety
 `frames` has room for `count` elements.
 */
int fyke_next(struct fyke_reader *reader,
              struct fyke_frame *frames,
              size_t count,
              int timeout_ms);

/*
 Makes several changes of the texts of a reader as one edit, all or none. After it, `fyke_next` gives only frames
 that the new texts accept, also of those that had arrived before. If a service does not answer within ten seconds
 this fails, the texts stay, and the reader continues; the edit may be made again later.

 # Safety
 `changes` has `count` elements.
 */
int fyke_reader_edit(struct fyke_reader *reader,
                     struct fyke_change *changes,
                     size_t count);

/*
 Returns the counts of a reader: seen = accepted + rejected + lost; `partial` is 1 if some frames are not counted.
 */
struct fyke_reader_counts fyke_reader_count(struct fyke_reader *reader);

/*
 Returns the frames that the program got and that this text accepted; 0 if the text does not exist.
 */
uint64_t fyke_reader_text_accepted(struct fyke_reader *reader, uint32_t id);

/*
 Closes a reader; NULL is none. Returns 0, or −1 if it is not open.
 */
int fyke_reader_close(struct fyke_reader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FYKE_H */
