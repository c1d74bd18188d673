// The scripts of the overview; shows nothing.
export default function () {
  keep("overview_code", "", { showOverview });
}
