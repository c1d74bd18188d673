// The scripts of the head view; shows nothing.
export default function () {
  keep("head_view_code", "", { showView });
}
